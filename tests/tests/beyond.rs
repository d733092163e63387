//! `kvplan/docs/beyond.md`: what is planned here and not by the engine that the golden vectors were taken from.
//!
//! The page is generated; `KV_BLESS=1 cargo test -p kvtests --test beyond` writes it anew.

use std::fmt::Write as _;
use std::path::Path;

use kvtests::run::{judge_all, plan};
use kvtests::vectors::{Outcome, Vector, load};

/// A kind of case that the other engine lacks, and why it is none here.
struct Reason {
    /// Words of the other engine's refusal, or for wrong bytes, a tag.
    refusal: &'static str,
    /// Tags of which the case must have one; empty for any.
    tags: &'static [&'static str],
    why: &'static str,
}

/// First match counts.
const REASONS: &[Reason] = &[
    Reason {
        refusal: "head split of a layout without contiguous heads",
        tags: &["hma"],
        why: "head slices are intervals of units in every layout, and each overlaid group has cuts of its own",
    },
    Reason {
        refusal: "head split of a layout without contiguous heads",
        tags: &["nvfp4"],
        why: "data and scales are parts of their own, each with its interval of heads",
    },
    Reason {
        refusal: "head split of a layout without contiguous heads",
        tags: &[],
        why: "head slices are intervals of units in every layout; where tokens lie outside heads, a slice is a run a \
              token",
    },
    Reason {
        refusal: "head-sharded draft under MLA",
        tags: &[],
        why: "sharding is said for each part: latents are the same on every rank, the draft's heads are an interval",
    },
    Reason {
        refusal: "replicated region lengths differ",
        tags: &["draft"],
        why: "the latents of a row travel as one run and the draft's heads as their slice; the rows need not be alike",
    },
    Reason {
        refusal: "replicated region lengths differ",
        tags: &[],
        why: "each side has a block stride of its own; how a row is padded is not compared",
    },
    Reason {
        refusal: "layouts differ",
        tags: &[],
        why: "layers and parts meet by name and each side keeps its own strides; layouts are never compared",
    },
    Reason {
        refusal: "block sizes do not divide",
        tags: &["ssm"],
        why: "block sizes meet in cuts, whatever their ratio; state slots are a group without block size",
    },
    Reason {
        refusal: "block sizes do not divide",
        tags: &[],
        why: "block sizes meet in cuts, in either direction and whatever their ratio",
    },
    Reason {
        refusal: "packed rows of both sides must be the same",
        tags: &["v4"],
        why: "the groups of a row meet page by page; alignment only moves offsets",
    },
    Reason {
        refusal: "packed rows of both sides must be the same",
        tags: &[],
        why: "layers meet by name: a page may lie in a row here and by itself there",
    },
    Reason {
        refusal: "a padded or kernel-split view",
        tags: &["kimi"],
        why: "kernel blocks inside a block are one more token factor; nothing has to tile",
    },
    Reason {
        refusal: "a padded or kernel-split view",
        tags: &[],
        why: "padding is a stride above the content, at any level and on either side",
    },
    Reason {
        refusal: "prefix caching with different kernel ratios",
        tags: &[],
        why: "kernel blocks are a token factor, a prefix is where a list begins, and state is a group of its own",
    },
    Reason {
        refusal: "host and device caches",
        tags: &["push"],
        why: "host-resident groups are lanes of their own, in a push as in a pull",
    },
    Reason {
        refusal: "host and device caches",
        tags: &[],
        why: "host-resident groups are lanes of their own: memory kinds are kept apart on both sides",
    },
    Reason {
        refusal: "",
        tags: &["ppl"],
        why: "kernel blocks are a token factor, so the unused kernel block at the end of a list is never counted",
    },
    Reason {
        refusal: "",
        tags: &["push"],
        why: "block sizes meet in cuts; a head's slice of a larger block is a run of its own",
    },
    Reason {
        refusal: "",
        tags: &["bsr"],
        why: "lists say at which block they begin, so blocks meet by position in the sequence and not by place in a list",
    },
    Reason {
        refusal: "",
        tags: &["ssm"],
        why: "states and token blocks overlay one row, each group with offsets and lengths of its own",
    },
    Reason {
        refusal: "",
        tags: &["hma"],
        why: "the groups of a row may have pages of different sizes: every layer has its own offset and length",
    },
];

/// What the other engine does.
fn theirs(vector: &Vector) -> String {
    match (vector.vllm.outcome, &vector.vllm.error, vector.vllm.descriptors) {
        (Outcome::Reject, Some(error), _) => match error.split_once(": ") {
            Some(("register", what)) => format!("refuses to register: {what}"),
            Some(("handshake", what)) => format!("refuses the handshake: {what}"),
            _ => format!("refuses: {error}"),
        },
        (_, _, Some(descriptors)) => format!("moves wrong bytes, in {descriptors} descriptors"),
        _ => "moves wrong bytes".into(),
    }
}

fn why(vector: &Vector) -> Option<&'static str> {
    let refusal = vector.vllm.error.as_deref().unwrap_or("");
    let fits = |reason: &&Reason| {
        let of_kind = if reason.refusal.is_empty() { refusal.is_empty() } else { refusal.contains(reason.refusal) };
        let tagged = |tag: &&str| vector.tags.iter().any(|own| own == *tag);
        of_kind && (reason.tags.is_empty() || reason.tags.iter().any(tagged))
    };
    REASONS.iter().find(fits).map(|reason| reason.why)
}

/// The line of a case, or what is wrong with it.
fn line(vector: &Vector) -> Result<(String, usize), String> {
    let transfer = vector.transfer();
    let answers = plan(&transfer).map_err(|error| error.to_string())?;
    let total = judge_all(&transfer, &answers, false)?;
    let why = why(vector).ok_or_else(|| format!("no reason fits {:?}, tags {:?}", vector.vllm.error, vector.tags))?;
    let line = format!(
        "| `{}` | {} | {} | {} | {} | {why} |\n",
        vector.name,
        vector.description.replace('|', "\\|"),
        theirs(vector),
        total.descriptors,
        total.bytes,
    );
    Ok((line, total.descriptors))
}

fn page() -> Result<String, String> {
    let (mut lines, mut refused, mut wrong, mut sum, mut failures) = (String::new(), 0, 0, 0, Vec::new());
    let vectors: Vec<Vector> = load()?.into_iter().filter(Vector::is_one_to_one).collect();
    let is_beyond = |vector: &&Vector| !vector.expect_error && vector.vllm.outcome != Outcome::Ok;
    for vector in vectors.iter().filter(is_beyond) {
        if vector.vllm.outcome == Outcome::Reject {
            refused += 1
        } else {
            wrong += 1
        }
        match line(vector) {
            Ok((line, descriptors)) => {
                lines += &line;
                sum += descriptors;
            }
            Err(error) => failures.push(format!("{}: {error}", vector.name)),
        }
    }
    if !failures.is_empty() {
        return Err(failures.join("\n"));
    }
    let mut page = String::new();
    let (one_to_one, cases) = (vectors.len(), refused + wrong);
    write!(
        page,
        "# Beyond the reference engine\n\n\
         Generated by `tests/tests/beyond.rs` from the golden vectors (`tests/vectors`), which fails when this page \
         is stale; `KV_BLESS=1 cargo test -p kvtests --test beyond` writes it anew.\n\n\
         Of the {one_to_one} cases between two ranks without context or pipeline parallelism, these are the {cases} valid ones \
         that vLLM 0.33.0 with its NIXL connector refuses ({refused}) or in which it moves wrong bytes ({wrong}). Here \
         all of them are planned, {sum} descriptors together, and every cell of the caches is judged. Every safe gap \
         is bridged (`max_gap` of `u64::MAX`); bytes are those of the caches, without padding.\n\n\
         | case | what it is | vLLM 0.33.0 | descriptors | bytes | why it works here |\n\
         |---|---|---|---:|---:|---|\n{lines}"
    )
    .map_err(|error| error.to_string())?;
    Ok(page)
}

#[test]
fn the_page_on_what_only_works_here_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../kvplan/docs/beyond.md");
    let page = page().unwrap_or_else(|failures| panic!("not planned right:\n{failures}"));
    if std::env::var_os("KV_BLESS").is_some() {
        std::fs::write(&path, &page).expect("the page can be written");
    }
    let committed = std::fs::read_to_string(&path).expect("the page is there");
    let stale = committed.lines().zip(page.lines()).find(|(old, new)| old != new);
    assert!(
        committed == page,
        "kvplan/docs/beyond.md is stale, KV_BLESS=1 writes it anew; first difference: {stale:?}"
    );
}

#[test]
fn every_reason_is_needed() {
    let vectors = load().expect("the vectors load");
    let used: Vec<&str> = vectors.iter().filter(|v| v.is_one_to_one() && !v.expect_error).filter_map(why).collect();
    for reason in REASONS {
        assert!(used.contains(&reason.why), "no case is explained by {:?}", reason.why);
    }
}
