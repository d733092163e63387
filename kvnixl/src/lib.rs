//! Moves KV cache blocks over NIXL.
