//! The six physical orders of the axes.

use std::fmt;
use std::str::FromStr;

/// Physical order of the axes layer (L), block (B), KV head (H), token in the block (N) and content (C), outermost
/// first.
///
/// "LB\*" and LHBNC are layer-outermost: each layer has memory of its own. "BL\*" and BHLNC are block-outermost:
/// all layers' pages of a block make one row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Layer, block, head, token: head-major pages, one region a layer.
    Lbhnc,
    /// Layer, block, token, head: token-major pages, one region a layer.
    Lbnhc,
    /// Layer, head, block, token: each head has memory of its own.
    Lhbnc,
    /// Block, layer, head, token: rows of head-major pages.
    Blhnc,
    /// Block, layer, token, head: rows of token-major pages.
    Blnhc,
    /// Block, head, layer, token: rows in which a head's pages of all layers lie together.
    Bhlnc,
}

impl Layout {
    /// All six.
    pub const ALL: [Self; 6] = [Self::Lbhnc, Self::Lbnhc, Self::Lhbnc, Self::Blhnc, Self::Blnhc, Self::Bhlnc];

    /// The layout's name, such as `BLHNC`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Lbhnc => "LBHNC",
            Self::Lbnhc => "LBNHC",
            Self::Lhbnc => "LHBNC",
            Self::Blhnc => "BLHNC",
            Self::Blnhc => "BLNHC",
            Self::Bhlnc => "BHLNC",
        }
    }

    /// Whether all layers' pages of a block make one row.
    #[must_use]
    pub fn is_block_outermost(self) -> bool {
        matches!(self, Self::Blhnc | Self::Blnhc | Self::Bhlnc)
    }

    /// Whether tokens lie outside heads.
    #[must_use]
    pub fn is_token_major(self) -> bool {
        matches!(self, Self::Lbnhc | Self::Blnhc)
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Layout {
    type Err = UnknownLayout;

    /// Reads a name, in upper or lower case.
    fn from_str(name: &str) -> Result<Self, UnknownLayout> {
        let found = Self::ALL.into_iter().find(|layout| layout.name().eq_ignore_ascii_case(name));
        found.ok_or_else(|| UnknownLayout(name.to_owned()))
    }
}

/// A text that names no layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no layout; known are LBHNC, LBNHC, LHBNC, BLHNC, BLNHC and BHLNC")]
pub struct UnknownLayout(pub String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_read_back_in_either_case() {
        for layout in Layout::ALL {
            assert_eq!(layout.name().parse(), Ok(layout));
            assert_eq!(layout.to_string().to_lowercase().parse(), Ok(layout));
        }
        assert!("BLH".parse::<Layout>().is_err());
    }
}
