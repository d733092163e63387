//! Whether what is read or written of a request part by part amounts to all its layers.
//!
//! What a pull reads under a lease, and what a registration's parts are written with, are answers for all layers or for
//! some. The other side counts leases and parts, and no layers: it would take some layers for the whole request. So the
//! side that posts looks, which has the answers; no message says anything of layers.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvplan::SomeLayers;
use kvspec::LayerIndex;

/// Layers that answers were for.
#[derive(Clone, Debug, Default)]
pub(crate) struct Covered {
    /// Some answer was for all, or does not say.
    all: bool,
    layers: BTreeSet<LayerIndex>,
    of: Option<Arc<SomeLayers>>,
}

impl Covered {
    /// Takes in what one answer is for; `None` for all.
    pub(crate) fn add(&mut self, layers: Option<&Arc<SomeLayers>>) {
        match layers {
            None => self.all = true,
            Some(some) => {
                self.layers.extend(&some.moved);
                self.of = Some(some.clone());
            }
        }
    }

    /// The first layer of the plan that no answer was for.
    pub(crate) fn missing(&self) -> Option<LayerIndex> {
        let mut of = self.of.iter().filter(|_| !self.all).flat_map(|some| some.of.iter());
        of.find(|layer| !self.layers.contains(layer)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_for_some_layers_are_all_together_or_one_is_missing() {
        let layers = |layers: &[u32]| layers.iter().copied().map(LayerIndex).collect::<Vec<_>>();
        let some = |moved: &[u32]| Arc::new(SomeLayers { moved: layers(moved), of: layers(&[0, 2, 3]).into() });
        let mut covered = Covered::default();
        assert_eq!(covered.missing(), None, "nothing was asked for");
        covered.add(Some(&some(&[3])));
        assert_eq!(covered.missing(), Some(LayerIndex(0)));
        covered.add(Some(&some(&[0])));
        assert_eq!(covered.missing(), Some(LayerIndex(2)));
        let mut by_one_more = covered.clone();
        by_one_more.add(Some(&some(&[2, 3])));
        assert_eq!(by_one_more.missing(), None);
        covered.add(None);
        assert_eq!(covered.missing(), None, "one was for all");
    }
}
