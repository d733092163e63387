//! Texts of a spec are of a length that messages can quote.

use super::finding::Finding;
use super::words::TextOf;
use crate::bounded::Bounded;
use crate::ids::LayerIndex;
use crate::spec::CacheSpec;
use crate::text::{MAX_FINGERPRINT_BYTES, MAX_NAME_BYTES, Short};

pub(super) fn check(spec: &CacheSpec, findings: &mut Bounded<Finding>) {
    let mut check = |text: &str, limit: usize, which: &dyn Fn() -> TextOf| {
        if text.len() > limit {
            findings.push(Finding::TextTooLong { text: which(), len: text.len(), limit });
        }
    };
    let fingerprint = &spec.fingerprint;
    check(&fingerprint.model, MAX_FINGERPRINT_BYTES, &|| TextOf::Model);
    check(&fingerprint.revision, MAX_FINGERPRINT_BYTES, &|| TextOf::Revision);
    for (name, value) in &fingerprint.extra {
        check(name, MAX_FINGERPRINT_BYTES, &|| TextOf::ExtraName);
        check(value, MAX_FINGERPRINT_BYTES, &|| TextOf::Extra(Short(name).to_string()));
    }
    for (layer, index) in spec.layers.iter().zip(0..) {
        let index = LayerIndex(index);
        check(layer.name.as_str(), MAX_NAME_BYTES, &|| TextOf::Layer(index));
        for (at, part) in layer.parts.iter().enumerate() {
            check(part.name.as_str(), MAX_NAME_BYTES, &|| TextOf::Part(index, at));
            check(&part.format, MAX_NAME_BYTES, &|| TextOf::Format(index, at));
        }
    }
}
