//! Element types: how wide, and what they are called in a part's format.

use super::KindError;

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Element {
    /// Name, as it appears in a part's format.
    pub name: &'static str,
    /// Width in bits.
    pub bits: u32,
}

impl Element {
    /// 32-bit floating point.
    pub const F32: Self = Self::new("f32", 32);
    /// 16-bit floating point.
    pub const F16: Self = Self::new("f16", 16);
    /// bfloat16.
    pub const BF16: Self = Self::new("bf16", 16);
    /// 8-bit floating point with 4 bits of exponent.
    pub const FP8_E4M3: Self = Self::new("fp8_e4m3", 8);
    /// 8-bit floating point with 5 bits of exponent.
    pub const FP8_E5M2: Self = Self::new("fp8_e5m2", 8);
    /// 8-bit integer.
    pub const INT8: Self = Self::new("int8", 8);
    /// 4-bit integer, two a byte.
    pub const INT4: Self = Self::new("int4", 4);
    /// 4-bit floating point, two a byte.
    pub const FP4_E2M1: Self = Self::new("fp4_e2m1", 4);

    /// An element type.
    #[must_use]
    pub const fn new(name: &'static str, bits: u32) -> Self {
        Self { name, bits }
    }

    /// Bytes of so many elements of a part.
    ///
    /// # Errors
    ///
    /// [`KindError::PartialByte`] if they do not fill bytes, [`KindError::TooLarge`] beyond 64 bits.
    pub fn bytes(self, part: &str, elements: u64) -> Result<u64, KindError> {
        let bits = u128::from(elements) * u128::from(self.bits);
        if bits % 8 != 0 {
            return Err(KindError::PartialByte { part: part.into(), elements, bits: self.bits });
        }
        u64::try_from(bits / 8)
            .map_err(|_| KindError::TooLarge { part: part.into(), factors: vec![elements, u64::from(self.bits)] })
    }
}
