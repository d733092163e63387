//! Arguments: right, nearly right, and wrong.

use std::ffi::{CStr, c_char};

use arbitrary::Result;
use kvffi::*;

use super::machine::Machine;

const NAMES: [&CStr; 6] = [c"layers.0", c"layers.1", c"layers.2", c"k", c"v", c"latent"];
/// Numbers at edges.
const EDGES: [u64; 10] = [0, 1, 2, u32::MAX as u64, 1 << 32, 1 << 40, i64::MAX as u64, 1 << 63, u64::MAX - 1, u64::MAX];

impl Machine<'_> {
    /// One of some numbers, or any other.
    pub fn number(&mut self, right: &[u64]) -> Result<u64> {
        if self.is_wrong()? {
            return Ok(match self.bytes.int_in_range(0..=2u8)? {
                0 => *self.bytes.choose(&EDGES)?,
                1 => self.bytes.arbitrary()?,
                _ => self.bytes.choose(right)?.wrapping_add_signed(self.bytes.int_in_range(-2..=2i64)?),
            });
        }
        self.bytes.choose(right).copied()
    }

    /// Like [`Machine::number`], for 32 bits.
    pub fn number32(&mut self, right: &[u32]) -> Result<u32> {
        if self.is_wrong()? {
            return Ok(match self.bytes.int_in_range(0..=2u8)? {
                0 => u32::MAX,
                1 => self.bytes.arbitrary()?,
                _ => self.bytes.choose(right)?.wrapping_add(1),
            });
        }
        self.bytes.choose(right).copied()
    }

    /// A value of an enum that has so many, from `first` on; or any other.
    pub fn enumerated(&mut self, first: i32, last: i32) -> Result<i32> {
        if self.is_wrong()? {
            return self.bytes.arbitrary();
        }
        self.bytes.int_in_range(first..=last)
    }

    /// Flags among those that are known, mostly none; or any.
    pub fn flags(&mut self, known: u32) -> Result<u32> {
        if self.is_wrong()? {
            return self.bytes.arbitrary();
        }
        Ok(if self.bytes.int_in_range(0..=7u8)? == 0 { self.bytes.int_in_range(0..=known)? } else { 0 })
    }

    /// A text that ends with a NUL, of some; or NULL, empty, long, no UTF-8.
    pub fn text_of(&mut self, right: &[&'static CStr]) -> Result<*const c_char> {
        if self.is_wrong()? {
            return Ok(match self.bytes.int_in_range(0..=4u8)? {
                0 => std::ptr::null(),
                1 => c"".as_ptr(),
                2 => c"\xff\xfe\xc3".as_ptr(),
                3 => {
                    let mut long = vec![u64::from_ne_bytes(*b"layers. "); 500];
                    long.push(0);
                    self.memory(&long).cast()
                }
                _ => {
                    let bytes: [u8; 15] = self.bytes.arbitrary()?;
                    let mut words = [0; 3];
                    for (i, byte) in bytes.iter().enumerate() {
                        words[i / 8] |= u64::from(*byte) << (8 * (i % 8));
                    }
                    self.memory(&words).cast()
                }
            });
        }
        Ok(self.bytes.choose(right)?.as_ptr())
    }

    /// A name of a layer or a part.
    pub fn name(&mut self) -> Result<*const c_char> {
        self.text_of(&NAMES)
    }

    /// What the bytes of a part mean.
    pub fn format(&mut self) -> Result<*const c_char> {
        if self.bytes.arbitrary()? { Ok(std::ptr::null()) } else { self.text_of(&[c"bf16", c"fp8"]) }
    }

    /// UTF-8 with its length, with and without a NUL, cut short, or of an impossible length.
    pub fn sized_text(&mut self, right: &[&str]) -> Result<(*const c_char, usize)> {
        let mut text = self.bytes.choose(right)?.as_bytes().to_vec();
        let mut len = text.len();
        if self.is_wrong()? {
            match self.bytes.int_in_range(0..=4u8)? {
                0 => return Ok((std::ptr::null(), len)),
                1 => len = usize::MAX,
                2 => len = self.bytes.int_in_range(0..=len)?,
                _ => {
                    let (at, byte) = (self.bytes.choose_index(len.max(1))?, self.bytes.arbitrary()?);
                    if let Some(place) = text.get_mut(at) {
                        *place = byte;
                    }
                }
            }
        }
        let mut words = vec![0; text.len() / 8 + 1];
        for (i, byte) in text.iter().enumerate() {
            words[i / 8] |= u64::from(*byte) << (8 * (i % 8));
        }
        Ok((self.memory(&words).cast(), len))
    }

    /// An array with its length: as it is, shorter, NULL, misaligned, or of an impossible length.
    pub fn array<T: Copy>(&mut self, values: &[T]) -> Result<(*const T, usize)> {
        let words = (size_of_val(values)).div_ceil(8) + 1;
        let pointer: *mut T = self.memory(&vec![0; words]).cast();
        for (i, value) in values.iter().enumerate() {
            // SAFETY: there is room for all of them.
            unsafe { pointer.add(i).write(*value) };
        }
        let (mut array, mut len) = (pointer.cast_const(), values.len());
        if self.is_wrong()? {
            match self.bytes.int_in_range(0..=4u8)? {
                0 => array = std::ptr::null(),
                1 if align_of::<T>() > 1 => array = array.wrapping_byte_add(1),
                2 => len = usize::MAX,
                3 => len = usize::MAX / 2,
                _ => len = self.bytes.int_in_range(0..=len)?,
            }
        }
        Ok((array, len))
    }

    /// A struct that begins with its size: of this header, an older or a newer one, or none.
    pub fn sized<T: Copy>(&mut self, value: T) -> Result<*const T> {
        let own = size_of::<T>();
        let mut size = own;
        let mut beyond = 0;
        if self.is_wrong()? {
            match self.bytes.int_in_range(0..=7u8)? {
                0 => return Ok(std::ptr::null()),
                1 => size = self.bytes.int_in_range(0..=own)?,
                2 => size = 8 * self.bytes.int_in_range(1..=own / 8)?,
                3 => size = own + 8 * self.bytes.int_in_range(1..=64usize)?,
                4 => {
                    size = own + 8 * self.bytes.int_in_range(1..=64usize)?;
                    beyond = 1;
                }
                5 => size = 4096,
                6 => size = *self.bytes.choose(&[usize::MAX, usize::MAX - 7, 4104, 1 << 40])?,
                _ => {
                    let pointer = self.memory(&[0; 600]);
                    return Ok(pointer.wrapping_byte_add(4).cast());
                }
            }
        }
        // As much as any size that is not refused.
        let pointer = self.memory(&[0; 600]);
        // SAFETY: there is room for the value, its size and a word behind it.
        unsafe {
            pointer.cast::<T>().write(value);
            pointer.write(size as u64);
            pointer.byte_add(own).write(beyond);
        }
        Ok(pointer.cast_const().cast())
    }

    /// A struct that a call fills, with sizes as [`Machine::sized`] has them.
    pub fn sized_out<T: Copy>(&mut self) -> Result<*mut T> {
        // SAFETY: structs that calls fill are integers and pointers; all zero is one.
        self.sized::<T>(unsafe { std::mem::zeroed() }).map(<*const T>::cast_mut)
    }

    /// Which model a worker serves, and its ranks.
    pub fn worker(&mut self) -> Result<*const kvffi_worker> {
        let pairs = [kvffi_key_value { key: self.name()?, value: self.name()? }];
        let (extra, num_extra) =
            if self.bytes.int_in_range(0..=7u8)? == 0 { self.array(&pairs)? } else { (std::ptr::null(), 0) };
        let tp_size = self.number32(&[1, 1, 2, 4])?;
        let tp_rank = self.bytes.int_in_range(0..=tp_size.saturating_sub(1).min(8))?;
        let dcp_size = if tp_size == 4 { self.number32(&[1, 1, 1, 2])? } else { self.number32(&[0, 1])? };
        let value = kvffi_worker {
            struct_size: 0,
            model: self.text_of(&[c"org/model"])?,
            revision: self.text_of(&[c"main"])?,
            extra,
            num_extra,
            tp_rank: self.number32(&[tp_rank])?,
            tp_size,
            pp_rank: self.number32(&[0])?,
            pp_size: self.number32(&[0, 1, 1, 2])?,
            dcp_rank: self.number32(&[tp_rank % dcp_size.max(1)])?,
            dcp_size,
            dcp_interleave: self.number(&[0, 0, 1, 16])?,
        };
        self.sized(value)
    }

    /// An allocation.
    pub fn storage(&mut self) -> Result<*const kvffi_storage> {
        let value = kvffi_storage {
            struct_size: 0,
            base: self.number(&[0x10_0000, 0x20_0000, 0x4000_0000])?,
            len: self.number(&[1 << 20, 1 << 24])?,
            mem: self.enumerated(0, 1)?,
            device: self.number32(&[0, 0, 0, 1])?,
            flags: self.flags(KVFFI_STORAGE_SHARED)?,
            reserved: self.number32(&[0])?,
        };
        self.sized(value)
    }

    /// A block table.
    pub fn group(&mut self) -> Result<*const kvffi_group> {
        let value = kvffi_group {
            struct_size: 0,
            block_tokens: self.number(&[16, 16, 64])?,
            num_blocks: self.number(&[8, 16])?,
            pool: self.number32(&[0, 0, 1])?,
            usage: self.enumerated(0, 1)?,
        };
        self.sized(value)
    }
}
