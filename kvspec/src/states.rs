//! How many tokens one stored state stands for.

use std::fmt;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Tokens that one stored state covers: `num / den`.
///
/// 1 for ordinary caches; 4 where a compressed cache stores one state for four tokens; 1/4 where four states
/// are stored for each token. In JSON a whole number, or `{"num": 1, "den": 4}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TokensPerState {
    /// Numerator, at least 1.
    pub num: u64,
    /// Denominator, at least 1.
    pub den: u64,
}

impl TokensPerState {
    /// One token a state.
    pub const ONE: Self = Self { num: 1, den: 1 };

    /// `num / den` in lowest terms.
    #[must_use]
    pub fn new(num: u64, den: u64) -> Self {
        Self { num, den }.reduced()
    }

    /// The same number in lowest terms, so that equal numbers compare equal. Zeros, which validation refuses,
    /// are left alone.
    #[must_use]
    pub fn reduced(self) -> Self {
        let (mut a, mut b) = (self.num, self.den);
        if a == 0 || b == 0 {
            return self;
        }
        while b != 0 {
            (a, b) = (b, a % b);
        }
        Self { num: self.num / a, den: self.den / a }
    }

    /// Whether this is one token a state, the default.
    #[must_use]
    pub fn is_one(&self) -> bool {
        *self == Self::ONE
    }

    /// States that `tokens` tokens are stored as; `None` when they do not end on a state boundary or the
    /// number does not fit.
    #[must_use]
    pub fn states(&self, tokens: u64) -> Option<u64> {
        let scaled = u128::from(tokens) * u128::from(self.den);
        let num = u128::from(self.num);
        if num == 0 || scaled % num != 0 {
            return None;
        }
        u64::try_from(scaled / num).ok()
    }
}

impl Default for TokensPerState {
    fn default() -> Self {
        Self::ONE
    }
}

impl fmt::Display for TokensPerState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.den {
            1 => self.num.fmt(f),
            den => write!(f, "{}/{den}", self.num),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fraction {
    num: u64,
    den: u64,
}

impl Serialize for TokensPerState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self { num, den: 1 } => serializer.serialize_u64(num),
            Self { num, den } => Fraction { num, den }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for TokensPerState {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(StatesVisitor)
    }
}

struct StatesVisitor;

impl<'de> Visitor<'de> for StatesVisitor {
    type Value = TokensPerState;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a whole number of tokens, or {\"num\": 1, \"den\": 4} for several states a token")
    }

    fn visit_u64<E: de::Error>(self, num: u64) -> Result<TokensPerState, E> {
        Ok(TokensPerState { num, den: 1 })
    }

    fn visit_i64<E: de::Error>(self, num: i64) -> Result<TokensPerState, E> {
        let num = u64::try_from(num).map_err(|_| E::invalid_value(Unexpected::Signed(num), &self))?;
        self.visit_u64(num)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<TokensPerState, A::Error> {
        let Fraction { num, den } = Fraction::deserialize(MapAccessDeserializer::new(map))?;
        Ok(TokensPerState { num, den }.reduced())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_whole_or_none() {
        assert_eq!(TokensPerState::new(4, 1).states(64), Some(16));
        assert_eq!(TokensPerState::new(4, 1).states(63), None);
        assert_eq!(TokensPerState::new(2, 8).states(64), Some(256));
        assert_eq!(TokensPerState::new(1, u64::MAX).states(2), None);
        assert_eq!(TokensPerState::new(0, 4).states(64), None);
    }

    #[test]
    fn fractions_are_kept_in_lowest_terms() {
        assert_eq!(TokensPerState::new(2, 8), TokensPerState { num: 1, den: 4 });
        assert_eq!(TokensPerState::new(8, 2), TokensPerState { num: 4, den: 1 });
        assert_eq!(TokensPerState::new(0, 0), TokensPerState { num: 0, den: 0 });
    }
}
