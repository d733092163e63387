//! Writes the small specs of the golden vectors to `corpus/spec_json`, for `spec_json` to begin with.

use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let corpus = root.join("corpus/spec_json");
    std::fs::create_dir_all(&corpus)?;
    let mut written = 0;
    for file in std::fs::read_dir(root.join("../tests/vectors"))? {
        let path = file?.path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let vector: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&path)?)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        for (side, spec) in [("local", &vector["local"]), ("remote", &vector["remotes"][0])] {
            let text = spec.to_string();
            if text.len() < 2500 {
                std::fs::write(corpus.join(format!("{name}.{side}")), text)?;
                written += 1;
            }
        }
    }
    println!("{written} seeds in {}", corpus.display());
    Ok(())
}
