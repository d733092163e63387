//! The golden vectors, planned by the library and judged by meaning.

use std::panic::{AssertUnwindSafe, catch_unwind};

use kvtests::run::{Refused, judge_all, plan};
use kvtests::transfer::Moved;
use kvtests::vectors::{Outcome, Stage, Vector, load};

#[derive(Default)]
struct Totals {
    cases: usize,
    refused: usize,
    descriptors: usize,
    bound: usize,
    other: usize,
    ours_beside_other: usize,
    beyond: usize,
    wrong: Vec<String>,
}

/// Descriptors, bytes needed and bytes to zero of the acting rank.
fn acting(vector: &Vector, answers: &[Vec<Moved>]) -> (usize, u64, u64) {
    let (mut descriptors, mut bytes, mut zero) = (0, 0, 0);
    for row in answers {
        for (source, answer) in row.iter().enumerate() {
            if vector.acting.is_none_or(|acting| acting == source) {
                descriptors += answer.copies.len();
                bytes += answer.copies.iter().map(|copy| copy.len).sum::<u64>() - answer.padding_bytes;
                zero += answer.zero.iter().map(|(_, len)| len).sum::<u64>();
            }
        }
    }
    (descriptors, bytes, zero)
}

fn judge_vector(vector: &Vector, totals: &mut Totals) -> Result<(), String> {
    totals.cases += 1;
    let mut transfer = vector.transfer();
    let planned = plan(&transfer);
    if let Some(stage) = vector.error_stage {
        totals.refused += 1;
        return match (stage, planned) {
            (Stage::Spec, Err(Refused::Spec(_)))
            | (Stage::Pair, Err(Refused::Pair(_)))
            | (Stage::Request, Err(Refused::Request(_))) => Ok(()),
            (_, other) => Err(format!("must be refused as {stage:?} ({:?}), but {:?}", vector.reason, other.err())),
        };
    }
    let reference = vector.reference.ok_or("no reference")?;
    let answers = planned.map_err(|error| error.to_string())?;
    judge_all(&transfer, &answers, false)?;
    let (descriptors, bytes, zero) = acting(vector, &answers);
    totals.descriptors += descriptors;
    totals.bound += reference.bridged_descriptors;
    if let (Outcome::Ok, Some(other)) = (vector.vllm.outcome, vector.vllm.descriptors) {
        totals.other += other;
        totals.ours_beside_other += descriptors;
    } else {
        totals.beyond += 1;
    }
    if (bytes, zero) != (reference.bytes, reference.zero_bytes) || descriptors > reference.bridged_descriptors {
        return Err(format!("{descriptors} descriptors, {bytes} bytes, {zero} to zero; {reference:?}"));
    }
    transfer.max_gap = 0;
    let answers = plan(&transfer).map_err(|error| error.to_string())?;
    judge_all(&transfer, &answers, false)?;
    let (descriptors, ..) = acting(vector, &answers);
    if descriptors > reference.lane_descriptors {
        return Err(format!("without gaps {descriptors} descriptors; {reference:?}"));
    }
    Ok(())
}

#[test]
fn all_454_vectors_are_planned_right() {
    let mut totals = Totals::default();
    for vector in load().expect("vectors load") {
        let verdict = catch_unwind(AssertUnwindSafe(|| judge_vector(&vector, &mut totals)));
        if let Err(error) = verdict.unwrap_or_else(|_| Err("panicked".into())) {
            totals.wrong.push(format!("{}: {error}", vector.name));
        }
    }
    println!(
        "{} cases, {} of them refused as they must be; {} descriptors, the reference has {}; \
         where the other engine is right it has {} and we have {}; it refuses or is wrong in {}",
        totals.cases,
        totals.refused,
        totals.descriptors,
        totals.bound,
        totals.other,
        totals.ours_beside_other,
        totals.beyond
    );
    assert_eq!(totals.cases, 454);
    assert!(totals.wrong.is_empty(), "{} cases are wrong:\n{}", totals.wrong.len(), totals.wrong.join("\n"));
}
