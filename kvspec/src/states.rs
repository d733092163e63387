//! How many tokens one stored state stands for.

use serde::{Deserialize, Serialize};

/// Tokens that one stored state covers: `num / den`.
///
/// 1 for ordinary caches; 4 where a compressed cache stores one state for four tokens; 1/4 where four states
/// are stored for each token. In JSON a whole number, or `{"num": 1, "den": 4}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "Form", into = "Form")]
pub struct TokensPerState {
    /// Numerator, at least 1.
    pub num: u64,
    /// Denominator, at least 1.
    pub den: u64,
}

impl TokensPerState {
    /// One token a state.
    pub const ONE: Self = Self { num: 1, den: 1 };

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

impl std::fmt::Display for TokensPerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.den {
            1 => self.num.fmt(f),
            den => write!(f, "{}/{den}", self.num),
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Form {
    Whole(u64),
    Fraction(Fraction),
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Fraction {
    num: u64,
    den: u64,
}

impl From<Form> for TokensPerState {
    fn from(form: Form) -> Self {
        match form {
            Form::Whole(num) => Self { num, den: 1 },
            Form::Fraction(Fraction { num, den }) => Self { num, den },
        }
    }
}

impl From<TokensPerState> for Form {
    fn from(value: TokensPerState) -> Self {
        match value.den {
            1 => Self::Whole(value.num),
            den => Self::Fraction(Fraction { num: value.num, den }),
        }
    }
}
