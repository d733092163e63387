//! Random transfers between random deployments of random models, valid by construction.
//!
//! Geometry is made of parts directly: any order of the axes, padding at every level, overlays, strangers of another
//! stride over the same bytes, kernel splits. A case is read off four tapes of numbers; smaller numbers are simpler
//! cases, so proptest shrinks the tapes.

mod dice;
mod lists;
mod model;
mod place;
mod side;

use kvplan::Op;
use kvtests::transfer::{Transfer, Worker};
use proptest::prelude::*;

use dice::Dice;
pub(crate) use side::Scope;
use side::Side;

/// Two ranks, or a few: the planner without context and pipeline parallelism.
pub(crate) const PAIRS: Scope = Scope { max_layers: 4, max_units: 6, max_tp: 3, max_pp: 1, context_parallel: false };

/// Whole deployments.
pub(crate) const DEPLOYMENTS: Scope =
    Scope { max_layers: 5, max_units: 16, max_tp: 16, max_pp: 4, context_parallel: true };

/// Numbers that one case is read from.
#[derive(Clone, Debug)]
pub(crate) struct Tapes {
    model: Vec<u16>,
    source: Vec<u16>,
    destination: Vec<u16>,
    request: Vec<u16>,
}

/// Tapes of random numbers.
pub(crate) fn tapes() -> impl Strategy<Value = Tapes> {
    let tape = |len: usize| prop::collection::vec(any::<u16>(), len);
    (tape(40), tape(160), tape(160), tape(80)).prop_map(|(model, source, destination, request)| Tapes {
        model,
        source,
        destination,
        request,
    })
}

/// The transfer that the tapes stand for.
pub(crate) fn transfer(tapes: &Tapes, scope: Scope) -> Transfer {
    let mut dice = Dice::new(&tapes.request);
    let model = model::layers(&mut Dice::new(&tapes.model), scope.max_layers, scope.max_units);
    let source = Side::draw(&mut Dice::new(&tapes.source), &model, scope);
    // Alike sides are where whole rows and gaps meet; otherwise as different as can be.
    let mut like = tapes.destination.clone();
    match dice.below(4) {
        0 => like.clone_from(&tapes.source),
        1 => like[2..].copy_from_slice(&tapes.source[2..]),
        _ => {}
    }
    let destination = Side::draw(&mut Dice::new(&like), &model, scope);
    let op = if dice.below(2) == 0 { Op::Read } else { Op::Write };
    let max_gap = match dice.below(3) {
        0 => 0,
        1 => u64::MAX,
        _ => 1 + dice.below(8),
    };
    let prompt = lists::Prompt::draw(&mut dice);
    let mut workers = |side: &Side, is_source: bool| -> Vec<Worker> {
        let entries = lists::entries(side, &prompt, is_source, &mut dice);
        let slack = [dice.below(4), dice.below(4)];
        let num_blocks = lists::blocks_needed(side, &entries, slack);
        (0..side.num_ranks())
            .map(|rank| Worker {
                spec: side.spec(&model, rank, &num_blocks),
                lists: lists::lists(side, rank, &entries[rank as usize], &num_blocks, &mut dice),
            })
            .collect()
    };
    let sources = workers(&source, true);
    let destinations = workers(&destination, false);
    Transfer { op, sources, destinations, max_gap }
}
