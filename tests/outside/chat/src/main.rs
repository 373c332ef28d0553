//! Renders a chat by the template of the model at the path given, and prints its ids, as a program that wants no engine.

use model_factory_format::{header::Header, source::probe, tokenizer::TokenizerSpec};
use model_factory_text::{ChatOptions, ChatTemplate, Message, Tokenizer};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: outside-chat PATH")?;
    let header = Header::read(probe(path.as_ref())?)?;
    let spec = TokenizerSpec::from_header(&header)?;
    let tokenizer = Tokenizer::from_header(&header, &spec)?;
    let options = ChatOptions::default();
    let template = ChatTemplate::of(&spec, &options)?;
    let prompt = template.render_with_spans(&[Message::user("Once upon a time")], &options, true)?;
    println!("{}\n{:?}", prompt.text(), prompt.encode(&tokenizer)?);
    Ok(())
}
