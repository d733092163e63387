//! Euclid's algorithm, which strides and periods need in several widths.

use std::ops::Rem;

/// The greatest common divisor of two numbers that are not negative; of 0 and a number, that number.
///
/// ```
/// use kvspec::divisor::gcd;
///
/// assert_eq!(gcd(48_u64, 32), 16);
/// assert_eq!(gcd(0_i128, 7), 7);
/// ```
#[must_use]
pub fn gcd<T: Copy + Default + PartialEq + Rem<Output = T>>(mut a: T, mut b: T) -> T {
    while b != T::default() {
        (a, b) = (b, a % b);
    }
    a
}
