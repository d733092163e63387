//! Texts that a spec gives: how long they may be, and how they are quoted.
//!
//! Names go into every message about what they name. One that is too long is a finding of its own, and shortened
//! wherever it is written, so that no spec makes messages that are much longer than a screen.

use std::fmt;

/// Bytes that a layer's name, a part's name and a format may have.
pub const MAX_NAME_BYTES: usize = 256;
/// Bytes that a model's name, a revision, and a name or a value of the fingerprint's `extra` may have.
pub const MAX_FINGERPRINT_BYTES: usize = 4096;

/// Bytes of a long text that are written, at its beginning and at its end.
const HEAD: usize = 100;
const TAIL: usize = 60;

/// Writes a text of up to [`MAX_NAME_BYTES`] whole, and of a longer one its beginning, its end and its length.
///
/// ```
/// use kvspec::text::Short;
///
/// assert_eq!(Short("layers.0").to_string(), "layers.0");
/// let long = "x".repeat(400_000);
/// assert!(Short(&long).to_string().ends_with("xxx (400000 bytes)"));
/// assert!(Short(&long).to_string().len() < 200);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Short<'a>(pub &'a str);

impl fmt::Display for Short<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.0;
        if text.len() <= MAX_NAME_BYTES {
            return f.write_str(text);
        }
        let boundary = |from: usize| (from..text.len()).find(|&at| text.is_char_boundary(at)).unwrap_or(text.len());
        let (head, tail) = (boundary(HEAD), boundary(text.len() - TAIL));
        write!(f, "{}…{} ({} bytes)", &text[..head], &text[tail..], text.len())
    }
}
