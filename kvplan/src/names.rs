//! Parts of a layer by name.

use std::collections::HashMap;

use kvspec::{Layer, Part};

/// Parts up to which looking at each is cheaper than a table.
const FEW: usize = 16;

/// Finds the parts of a layer by name. A peer's layer may have as many as its spec has room for.
pub(crate) struct PartsByName<'a> {
    parts: &'a [Part],
    table: Option<HashMap<&'a str, &'a Part>>,
}

impl<'a> PartsByName<'a> {
    pub(crate) fn new(layer: &'a Layer) -> Self {
        let parts = &layer.parts[..];
        let table = || parts.iter().map(|part| (part.name.as_str(), part)).collect();
        Self { parts, table: (parts.len() > FEW).then(table) }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&'a Part> {
        match &self.table {
            Some(table) => table.get(name).copied(),
            None => self.parts.iter().find(|part| part.name.as_str() == name),
        }
    }
}
