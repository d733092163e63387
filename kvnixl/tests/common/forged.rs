//! Blobs that say what their agent would not.

use serde::{Deserialize, Serialize};

/// The first map of a blob, which says who its worker is.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Header {
    pub fingerprint: serde_json::Value,
    pub agent: String,
    pub incarnation: u64,
    pub generation: u64,
    pub started: Option<u64>,
}

/// The same blob with another header, and a checksum that fits.
pub fn forged(blob: &[u8], change: impl FnOnce(&mut Header)) -> Vec<u8> {
    let mut rest = std::io::Cursor::new(&blob[12..]);
    let mut header: Header = Deserialize::deserialize(&mut rmp_serde::Deserializer::new(&mut rest)).unwrap();
    let body = &blob[12 + usize::try_from(rest.position()).unwrap()..];
    change(&mut header);
    let maps = [&rmp_serde::to_vec_named(&header).unwrap()[..], body].concat();
    [&blob[..8], &crc32fast::hash(&maps).to_be_bytes()[..], &maps].concat()
}
