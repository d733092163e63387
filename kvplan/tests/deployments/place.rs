//! Where parts lie: any order of the axes, padding at every level.

use super::dice::Dice;

/// One axis of a cache; the innermost is always the content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ax {
    /// Blocks.
    Block(u64),
    /// The layers of a group, one after the other.
    Layer,
    /// The parts of a layer, one after the other.
    Part,
    /// Units.
    Unit,
    /// A token factor, outermost first.
    Token(usize),
}

/// A part being placed: counts go in, offset and strides come out.
#[derive(Clone, Debug)]
pub(super) struct Item {
    pub(super) layer: usize,
    pub(super) part: usize,
    pub(super) units: u64,
    pub(super) tokens: Vec<u64>,
    pub(super) content: u64,
    pub(super) offset: u64,
    pub(super) block_stride: u64,
    pub(super) unit_stride: u64,
    pub(super) token_strides: Vec<u64>,
}

/// Places the items along the axes, from byte 0; answers how many bytes they take.
pub(super) fn arrange(axes: &[Ax], items: &mut [&mut Item], dice: &mut Dice) -> u64 {
    let Some((axis, rest)) = axes.split_first() else {
        // Packed: the contents lie back to back within a cell.
        return in_sequence(
            items,
            |item| (item.layer, item.part),
            dice,
            |items, _| items.iter().map(|item| item.content).max().unwrap_or(0),
        );
    };
    match axis {
        Ax::Layer => in_sequence(items, |item| (item.layer, 0), dice, |items, dice| arrange(rest, items, dice)),
        Ax::Part => in_sequence(items, |item| (item.part, 0), dice, |items, dice| arrange(rest, items, dice)),
        Ax::Block(count) => {
            let size = arrange(rest, items, dice);
            let stride = size + dice.pad();
            for item in items {
                item.block_stride = stride;
            }
            count * stride
        }
        Ax::Unit => in_sequence(
            items,
            |item| (usize::try_from(item.units).unwrap_or(0), 0),
            dice,
            |items, dice| {
                let size = arrange(rest, items, dice);
                let stride = size + dice.pad();
                for item in items.iter_mut() {
                    item.unit_stride = stride;
                }
                (items[0].units - 1) * stride + size
            },
        ),
        Ax::Token(factor) => {
            let count_of = |item: &Item| item.tokens.get(*factor).copied().unwrap_or(1);
            in_sequence(
                items,
                |item| (usize::try_from(count_of(item)).unwrap_or(0), 0),
                dice,
                |items, dice| {
                    let size = arrange(rest, items, dice);
                    let stride = size + dice.pad();
                    for item in items.iter_mut() {
                        if let Some(token_stride) = item.token_strides.get_mut(*factor) {
                            *token_stride = stride;
                        }
                    }
                    (count_of(items[0]) - 1) * stride + size
                },
            )
        }
    }
}

/// Places items of equal key together and the keys one after the other.
fn in_sequence(
    items: &mut [&mut Item],
    key: impl Fn(&Item) -> (usize, usize),
    dice: &mut Dice,
    mut place: impl FnMut(&mut [&mut Item], &mut Dice) -> u64,
) -> u64 {
    let mut keys: Vec<(usize, usize)> = items.iter().map(|item| key(item)).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut base = 0;
    let last = keys.len() - 1;
    for (index, wanted) in keys.into_iter().enumerate() {
        let mut members: Vec<&mut Item> =
            items.iter_mut().filter(|item| key(item) == wanted).map(|item| &mut **item).collect();
        let size = place(&mut members, dice);
        for item in members {
            item.offset += base;
        }
        base += size + if index < last { dice.pad() } else { 0 };
    }
    base
}
