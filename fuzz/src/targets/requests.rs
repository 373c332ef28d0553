//! Bytes as the body of a request of each API.

use model_factory_openai::{
    CompletionRequest, DetokenizeRequest, EmbeddingRequest, Outline, RequestError, RerankRequest, TemplateRequest,
    TokenizeRequest, anthropic, llama_cpp, ollama, responses,
};

pub fn run(bytes: &[u8]) {
    let check = |error: RequestError| assert!(!error.to_string().is_empty());
    let respond = |bytes: &[u8]| responses::request(bytes, &[]).map(|(request, _)| request);
    let complete = |bytes: &[u8]| llama_cpp::completion(bytes).map(|(request, _)| request);
    let infill = |bytes: &[u8]| llama_cpp::infill(bytes).map(|(request, _)| request);
    let chats = [CompletionRequest::chat, anthropic::request, respond, ollama::chat];
    for read in chats.into_iter().chain([CompletionRequest::text, ollama::generate, complete, infill]) {
        match read(bytes) {
            Ok(request) => {
                // A server admits a request by its outline.
                assert!(request.answers() <= Outline::of(bytes).map_or(0, |outline| outline.answers));
            }
            Err(error) => check(error),
        }
    }
    let _ = EmbeddingRequest::parse(bytes).map_err(check);
    let _ = ollama::EmbedRequest::embed(bytes).map_err(check);
    let _ = ollama::EmbedRequest::embeddings(bytes).map_err(check);
    let _ = ollama::show(bytes).map_err(check);
    let _ = llama_cpp::VectorsRequest::parse(bytes).map_err(check);
    let _ = RerankRequest::parse(bytes).map_err(check);
    let _ = TokenizeRequest::parse(bytes).map_err(check);
    let _ = DetokenizeRequest::parse(bytes).map_err(check);
    let _ = TemplateRequest::parse(bytes).map_err(check);
}
