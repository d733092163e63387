//! What a model keeps, whoever serves it: layers and parts without addresses.

use kvspec::{Kind, TokensPerState};

use super::dice::Dice;

#[derive(Clone, Debug)]
pub(super) struct LayerModel {
    pub(super) name: String,
    pub(super) kind: Kind,
    pub(super) is_state: bool,
    pub(super) parts: Vec<PartModel>,
}

#[derive(Clone, Debug)]
pub(super) struct PartModel {
    pub(super) name: &'static str,
    /// Units of the whole model; `None` when replicated.
    pub(super) total: Option<u64>,
    /// Units that every rank holds of a replicated part.
    pub(super) replicated_units: u64,
    pub(super) content: u64,
    pub(super) tokens_per_state: TokensPerState,
    /// States of a slot, for state layers.
    pub(super) inner: u64,
}

fn part(name: &'static str, total: Option<u64>, content: u64) -> PartModel {
    PartModel { name, total, replicated_units: 1, content, tokens_per_state: TokensPerState::ONE, inner: 1 }
}

/// Between one and `most` layers of any kind.
pub(super) fn layers(dice: &mut Dice, most: u64, max_units: u64) -> Vec<LayerModel> {
    let ratios = [(1, 1), (1, 1), (2, 1), (4, 1), (1, 2), (3, 2)];
    (0..=dice.below(most))
        .map(|index| {
            let choice = dice.below(7);
            let units = Some(1 + dice.below(max_units));
            let content = 1 + dice.below(9);
            let other = 1 + dice.below(9);
            let (num, den) = dice.pick(&ratios);
            let inner = 1 + dice.below(6);
            let (kind, mut parts) = match choice {
                0 => (Kind::Mla, vec![part("latent", None, content)]),
                1 => (Kind::Attention, vec![part("k", units, content), part("v", units, content)]),
                2 => (Kind::SlidingWindow, vec![part("k", units, content), part("v", units, other)]),
                3 => (
                    Kind::Attention,
                    vec![
                        part("k", units, content),
                        part("v", units, content),
                        part("k_scale", units, 1),
                        part("v_scale", units, 2),
                    ],
                ),
                4 => (Kind::Indexer, vec![part("latent", None, other), part("index", None, content)]),
                5 => (
                    Kind::Ssm,
                    vec![part("conv.x", units, content), part("conv.b", units, 2), part("ssm", units, other)],
                ),
                _ => (Kind::CircularBuffer, vec![part("ring", None, content)]),
            };
            let is_state = matches!(kind, Kind::Ssm | Kind::CircularBuffer);
            for part in &mut parts {
                if is_state {
                    part.inner = if part.name == "ssm" { 1 } else { inner };
                    if part.name == "ring" {
                        part.replicated_units = 1 + other % 3;
                    }
                } else if part.total.is_none() {
                    part.tokens_per_state = TokensPerState { num, den };
                }
            }
            LayerModel { name: format!("layer{index}"), kind, is_state, parts }
        })
        .collect()
}
