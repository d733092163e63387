//! Attention with keys and values for each KV head.

use super::{Describe, Element, KindError, Page, PartShape, Section, Units, sum};
use crate::spec::{Kind, Usage};

/// Multi-head, grouped-query or multi-query attention: parts `k` and `v`.
///
/// Shape of one block: `[num_kv_heads, block_tokens, head_size]` for K, `[…, value_head_size]` for V. Heads are
/// sharded over TP; with more ranks than heads neighbouring ranks hold the same head, and multi-query attention is
/// the case of one head. How K and V lie to each other is the engine's choice: vLLM's FlashAttention backend packs
/// them in two halves or side by side by version, others keep two tensors.
///
/// ```
/// use kvspec::kinds::{Attention, Describe, Element, KvPacking};
///
/// let gqa = Attention::new(8, 128, Element::BF16);
/// let page = gqa.describe()?;
/// assert_eq!(page.sections.len(), 1);
/// assert_eq!(page.sections[0].parts[0].content, 256);
///
/// // Keys of 192 elements, values of 128, in two tensors.
/// let unequal = Attention::new(8, 192, Element::BF16).value_head_size(128).packing(KvPacking::Apart);
/// let page = unequal.describe()?;
/// assert_eq!((page.sections[0].parts[0].content, page.sections[1].parts[0].content), (384, 256));
/// assert_eq!((page.sections[0].buffer, page.sections[1].buffer), (0, 1));
/// # Ok::<(), kvspec::kinds::KindError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attention {
    num_kv_heads: u64,
    head_size: u64,
    value_head_size: u64,
    element: Element,
    row_scale: u64,
    packing: KvPacking,
    format: Option<String>,
}

/// How K and V lie to each other in a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum KvPacking {
    /// Side by side in the row of one head and token: `[K|V] [K|V] …`.
    #[default]
    Packed,
    /// In each block all of K, then all of V: `[K K …] [V V …]`.
    Halves,
    /// In buffers of their own.
    Apart,
}

impl Attention {
    /// `num_kv_heads` heads over all ranks, `head_size` elements in each key and value.
    #[must_use]
    pub fn new(num_kv_heads: u64, head_size: u64, element: Element) -> Self {
        Self {
            num_kv_heads,
            head_size,
            value_head_size: head_size,
            element,
            row_scale: 0,
            packing: KvPacking::default(),
            format: None,
        }
    }

    /// Elements of a value, where it differs from a key.
    #[must_use]
    pub fn value_head_size(self, value_head_size: u64) -> Self {
        Self { value_head_size, ..self }
    }

    /// How K and V lie to each other; [`KvPacking::Packed`] by default.
    #[must_use]
    pub fn packing(self, packing: KvPacking) -> Self {
        Self { packing, ..self }
    }

    /// What the bytes mean; the element's name by default.
    #[must_use]
    pub fn format(self, format: impl Into<String>) -> Self {
        Self { format: Some(format.into()), ..self }
    }

    /// Bytes of scale behind each key and each value, in the same cell.
    pub(super) fn row_scale(self, row_scale: u64) -> Self {
        Self { row_scale, ..self }
    }

    pub(super) fn num_kv_heads(&self) -> u64 {
        self.num_kv_heads
    }

    pub(super) fn of_kind(&self, kind: Kind) -> Result<Page, KindError> {
        let part = |name: &str, elements| {
            Ok(PartShape {
                name: name.into(),
                units: Units::Sharded(self.num_kv_heads),
                content: sum(name, &[self.element.bytes(name, elements)?, self.row_scale])?,
                format: self.format.clone().unwrap_or_else(|| self.element.name.to_owned()),
            })
        };
        let (k, v) = (part("k", self.head_size)?, part("v", self.value_head_size)?);
        let sections = match self.packing {
            KvPacking::Packed => vec![Section::row([k, v])],
            KvPacking::Halves => vec![Section::of(k), Section::of(v)],
            KvPacking::Apart => vec![Section::of(k), Section { buffer: 1, ..Section::of(v) }],
        };
        Ok(Page { kind, usage: Usage::Tokens, sections })
    }
}

impl Describe for Attention {
    fn describe(&self) -> Result<Page, KindError> {
        self.of_kind(Kind::Attention)
    }
}
