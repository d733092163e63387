//! Which units of a part a tensor-parallel rank owns.

use std::fmt;
use std::ops::Range;

use serde::de::value::MapAccessDeserializer;
use serde::de::{self, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::topology::Shard;

/// How a part's units are split over TP ranks.
///
/// In JSON `"replicated"`, `{"total": 8}` or `{"total": 8, "first": 2}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Sharding {
    /// The same bytes on every rank.
    Replicated,
    /// `total` units over all ranks.
    Sharded {
        /// Units of the whole model.
        total: u64,
        /// First unit that this rank owns, for engines that shard by a rule of their own; `None` for the
        /// standard rule of [`owned_units`].
        first: Option<u64>,
    },
}

/// Units of `0..total` that a rank owns under the standard rule.
///
/// With at least as many units as ranks, rank r owns `[⌊r·total/size⌋, ⌊(r+1)·total/size⌋)`; with more ranks
/// than units, the single unit `⌊r·total/size⌋`, so neighbouring ranks hold replicas.
///
/// `shard.size` of 0 gives an empty range.
#[must_use]
pub fn owned_units(total: u64, shard: Shard) -> Range<u64> {
    let (rank, size) = (u128::from(shard.rank), u128::from(shard.size));
    if size == 0 {
        return 0..0;
    }
    // rank < size (or the result is rejected by validation), so the quotients are at most `total` + 1 unit.
    let at = |r: u128| u64::try_from(r * u128::from(total) / size).unwrap_or(u64::MAX);
    if size <= u128::from(total) {
        at(rank)..at(rank + 1)
    } else {
        let unit = at(rank);
        unit..unit.checked_add(1).unwrap_or(unit)
    }
}

/// Ranks of `0..size` that hold `unit` under the standard rule: the inverse of [`owned_units`].
#[must_use]
pub fn ranks_of_unit(total: u64, size: u32, unit: u64) -> Range<u32> {
    let (total, size, unit) = (u128::from(total), u128::from(size), u128::from(unit));
    if unit >= total {
        return 0..0;
    }
    let rank = |value: u128| u32::try_from(value.min(size)).unwrap_or(u32::MAX);
    if size <= total {
        // The last rank whose range starts at or before the unit.
        let owner = ((unit + 1) * size - 1) / total;
        rank(owner)..rank(owner + 1)
    } else {
        rank((unit * size).div_ceil(total))..rank(((unit + 1) * size).div_ceil(total))
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sharded {
    total: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    first: Option<u64>,
}

impl Serialize for Sharding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match *self {
            Self::Replicated => serializer.serialize_str("replicated"),
            Self::Sharded { total, first } => Sharded { total, first }.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for Sharding {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ShardingVisitor)
    }
}

/// By hand, so that an error says what is wrong inside the object and not only that no form fits.
struct ShardingVisitor;

impl<'de> Visitor<'de> for ShardingVisitor {
    type Value = Sharding;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"replicated\", {\"total\": units} or {\"total\": units, \"first\": unit}")
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<Sharding, E> {
        match word {
            "replicated" => Ok(Sharding::Replicated),
            _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Sharding, A::Error> {
        let Sharded { total, first } = Sharded::deserialize(MapAccessDeserializer::new(map))?;
        Ok(Sharding::Sharded { total, first })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_owned_and_the_inverse_agrees() {
        for total in 1..=12 {
            for size in 1..=16u32 {
                for unit in 0..total {
                    let holders: Vec<u32> =
                        (0..size).filter(|&rank| owned_units(total, Shard { rank, size }).contains(&unit)).collect();
                    let expected: Vec<u32> = ranks_of_unit(total, size, unit).collect();
                    assert_eq!(holders, expected, "unit {unit} of {total} over {size}");
                    assert!(!holders.is_empty());
                }
            }
        }
    }
}
