//! Asks a model by rig: `cargo run --release --example ask -- path/to/model "A question"`.

use model_factory::UnifiedModelFactory;
use model_factory_rig::client;
use rig_core::completion::CompletionRequest;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().unwrap_or_else(|| "../../fixtures/demo".into());
    let question = arguments.next().unwrap_or_else(|| "Once upon a time".into());
    let model = client(&UnifiedModelFactory::load(path)?).completion("model");
    let response = model.call(CompletionRequest::new(question).max_tokens(200)).await?;
    println!("{}\n{:?}", response.text(), response.usage);
    Ok(())
}
