//! Names the shared library by its ABI version, so that programs linked against one ABI never load another.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Below 1.0 a minor version may break the ABI: it belongs to the name.
    let major = std::env::var("CARGO_PKG_VERSION_MAJOR").unwrap_or_default();
    let minor = std::env::var("CARGO_PKG_VERSION_MINOR").unwrap_or_default();
    let abi = if major == "0" { format!("0.{minor}") } else { major };
    if std::env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libkvffi.so.{abi}");
    }
}
