//! Attention that sees a part of the sequence.
//!
//! The page is that of the attention it limits: a window decides which blocks a request still has, which is what a
//! request's lists say, and never how a block looks. Lists of a windowed group start late (`first` above 0);
//! attention sinks are ordinary tokens in blocks that stay listed, with holes between them and the window.

use super::{Attention, Describe, KindError, Mla, Page};
use crate::spec::Kind;

/// Attention over a window of the latest tokens.
///
/// ```
/// use kvspec::Kind;
/// use kvspec::kinds::{Attention, Describe, Element, SlidingWindow};
///
/// let page = SlidingWindow(Attention::new(4, 256, Element::BF16)).describe()?;
/// assert_eq!(page.kind, Kind::SlidingWindow);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindow(pub Attention);

/// Attention within chunks of the sequence.
///
/// ```
/// use kvspec::Kind;
/// use kvspec::kinds::{Attention, ChunkedLocal, Describe, Element};
///
/// let page = ChunkedLocal(Attention::new(8, 128, Element::FP8_E4M3)).describe()?;
/// assert_eq!((page.kind, page.sections[0].parts[1].content), (Kind::ChunkedLocal, 128));
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChunkedLocal(pub Attention);

/// Multi-head latent attention over a window, also the state of a compressor that keeps its latest rows.
///
/// ```
/// use kvspec::Kind;
/// use kvspec::kinds::{Describe, Mla, SlidingWindowMla};
///
/// let page = SlidingWindowMla(Mla::opaque(584, "fp8+bf16+scale").page_align(576)).describe()?;
/// assert_eq!(page.kind, Kind::SlidingWindowMla);
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlidingWindowMla(pub Mla);

impl Describe for SlidingWindow {
    fn describe(&self) -> Result<Page, KindError> {
        self.0.of_kind(Kind::SlidingWindow)
    }
}

impl Describe for ChunkedLocal {
    fn describe(&self) -> Result<Page, KindError> {
        self.0.of_kind(Kind::ChunkedLocal)
    }
}

impl Describe for SlidingWindowMla {
    fn describe(&self) -> Result<Page, KindError> {
        Ok(self.0.of_kind(Kind::SlidingWindowMla))
    }
}
