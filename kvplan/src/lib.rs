//! Plans KV cache transfers.

pub mod descriptor;
pub mod request;
