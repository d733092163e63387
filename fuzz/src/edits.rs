//! Golden vectors in which some numbers were changed.

use std::sync::LazyLock;

use arbitrary::{Result, Unstructured};
use kvplan::{PairOptions, Request};
use kvspec::CacheSpec;
use serde_json::Value;

/// A pair, as plain data, and a request.
#[derive(Debug)]
pub struct Case {
    /// The worker that plans.
    pub local: CacheSpec,
    /// Its peer.
    pub remote: CacheSpec,
    /// What the plan may do.
    pub options: PairOptions,
    /// What it is asked for.
    pub request: Request,
}

/// The small vectors, each with its first remote, as JSON: `[local, remote, request]`.
static VECTORS: LazyLock<Vec<Value>> = LazyLock::new(|| {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/vectors");
    let files = std::fs::read_dir(folder).expect("the vectors are there").flatten();
    let mut texts: Vec<String> = files.filter_map(|file| std::fs::read_to_string(file.path()).ok()).collect();
    texts.retain(|text| text.len() < 8000);
    texts.sort();
    texts.iter().filter_map(|text| read(&serde_json::from_str(text).ok()?)).collect()
});

fn read(vector: &Value) -> Option<Value> {
    let request = &vector["requests"].get(0)?;
    // Lists of the other side are the same for every rank, or by rank.
    let remote = if request["remote"].is_array() { &request["remote"] } else { &request["remote"]["0"] };
    let request = serde_json::json!({"op": vector["op"], "local": request["local"], "remote": remote});
    Some(serde_json::json!([vector["local"], vector["remotes"][0], request]))
}

/// The case that bytes stand for; `None` where the edits leave a form that cannot be read.
#[must_use]
pub fn case(bytes: &[u8]) -> Option<Case> {
    let mut bytes = Unstructured::new(bytes);
    let vector = bytes.choose_index(VECTORS.len()).ok()?;
    let mut case = VECTORS[vector].clone();
    let options = PairOptions {
        max_gap: [0, 1, 64, u64::MAX][bytes.choose_index(4).ok()?],
        min_run: [0, 0, 0, 1024][bytes.choose_index(4).ok()?],
        ..PairOptions::default()
    };
    while !bytes.is_empty() {
        edit(&mut case, &mut bytes).ok()?;
    }
    let [local, remote, request] = case.as_array_mut()?.as_mut_slice() else { return None };
    let request: Request = serde_json::from_value(request.take()).ok()?;
    Some(Case {
        local: serde_json::from_value(local.take()).ok()?,
        remote: serde_json::from_value(remote.take()).ok()?,
        options: PairOptions { op: request.op, ..options },
        request,
    })
}

/// Changes one number, or drops or doubles one element of a list.
fn edit(case: &mut Value, bytes: &mut Unstructured<'_>) -> Result<()> {
    let mut at = case;
    loop {
        match at {
            Value::Array(values) if !values.is_empty() => {
                let index = bytes.choose_index(values.len())?;
                let list_of_numbers = values[index].is_number();
                match bytes.int_in_range(0..=15u8)? {
                    0 if values.len() != 3 => {
                        values.remove(index);
                        return Ok(());
                    }
                    1 if values.len() != 3 || list_of_numbers => {
                        let value = values[index].clone();
                        values.push(value);
                        return Ok(());
                    }
                    _ => at = &mut values[index],
                }
            }
            Value::Object(fields) if !fields.is_empty() => {
                let index = bytes.choose_index(fields.len())?;
                at = fields.values_mut().nth(index).ok_or(arbitrary::Error::IncorrectFormat)?;
            }
            Value::Number(number) => {
                let old = number.as_u64().unwrap_or(0);
                *number = number_near(old, bytes)?.into();
                return Ok(());
            }
            Value::Bool(value) => {
                *value = !*value;
                return Ok(());
            }
            _ => return Ok(()),
        }
    }
}

/// Another number: near the old one, at an edge, or any.
pub(crate) fn number_near(old: u64, bytes: &mut Unstructured<'_>) -> Result<u64> {
    Ok(match bytes.int_in_range(0..=19u8)? {
        0 => 0,
        1 => 1,
        2 => 2,
        3 | 4 => old.wrapping_add(1),
        5 | 6 => old.wrapping_sub(1),
        7 | 8 => old.wrapping_mul(2),
        9 | 10 => old / 2,
        11 => old.wrapping_mul(3),
        12 => u64::from(u32::MAX),
        13 => 1 << 40,
        14 => 1 << 63,
        15 => u64::MAX,
        16 => u64::MAX - old,
        17 => bytes.arbitrary::<u64>()?,
        18 => u64::from(bytes.arbitrary::<u8>()?),
        _ => old.wrapping_add(u64::from(bytes.arbitrary::<u16>()?)),
    })
}
