//! README's program: continues a text by the model at the path given.

use model_factory::{GenerateOptions, UnifiedModelFactory};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args_os().nth(1).ok_or("usage: outside-generate PATH")?;
    let model = UnifiedModelFactory::load(&path)?;
    let options = GenerateOptions::default().temperature(0.0).max_tokens(8);
    for piece in model.generate("Once upon a time", &options)? {
        print!("{}", piece?.text);
    }
    println!();
    Ok(())
}
