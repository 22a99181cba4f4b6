//! Continues a text: `cargo run --release --example complete -- MODEL "Once upon a time"`.

use std::io::Write;

use butter::{GenerateOptions, LoadOptions, Model};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [path, prompt] = arguments.as_slice() else {
        return Err("usage: complete MODEL PROMPT".into());
    };

    let model = Model::load(path, &LoadOptions::default())?;
    let options = GenerateOptions { max_tokens: Some(128), ..GenerateOptions::default() };
    for chunk in model.generate(prompt.as_str(), options)? {
        print!("{}", chunk?.text);
        std::io::stdout().flush()?;
    }
    println!();
    Ok(())
}
