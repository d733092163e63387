//! What the documents name is there.

use std::path::Path;

/// All Rust sources below a folder, as one text.
fn sources(folder: &Path) -> String {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            text += &sources(&path);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            text += &std::fs::read_to_string(&path).unwrap();
        }
    }
    text
}

#[test]
fn every_test_that_the_operations_page_names_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = std::fs::read_to_string(root.join("../docs/OPERATIONS.md")).unwrap();
    let sources = sources(&root.join("src")) + &sources(&root.join("tests"));
    let is_test =
        |word: &&str| word.matches('_').count() >= 3 && word.bytes().all(|b| b == b'_' || b.is_ascii_lowercase());
    let is_of_c = |word: &str| word.starts_with("kvffi_") || word.ends_with("_ms");
    let named: Vec<&str> = page.split('`').filter(is_test).filter(|word| !is_of_c(word)).collect();
    assert!(named.len() > 30, "the page names only {} tests", named.len());
    for name in named {
        assert!(sources.contains(&format!("fn {name}()")), "there is no test {name}");
    }
}
