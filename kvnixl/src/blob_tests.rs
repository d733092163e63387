//! The bytes are pinned by `tests/data/blob_v1_*.bin`; hostile ones end in a typed error.

use kvspec::CacheSpec;

use super::*;

const GOLDEN: [(&str, &[u8]); 2] = [
    ("plain", include_bytes!("../tests/data/blob_v1_plain.bin")),
    // As a later version may write it: fields that this one does not know, in another order.
    ("grown", include_bytes!("../tests/data/blob_v1_grown.bin")),
];

fn spec() -> CacheSpec {
    serde_json::from_str(include_str!("../tests/data/blob_v1.json")).unwrap()
}

fn header() -> Header {
    Header {
        fingerprint: spec().fingerprint,
        agent: "prefill-0".into(),
        incarnation: 0x0123_4567_89ab_cdef,
        generation: 3,
        started: None,
    }
}

/// Reads a blob of whomever it is.
fn decode(bytes: &[u8], fingerprint: &Fingerprint) -> Result<Blob> {
    Ok(super::decode(bytes, fingerprint, |_| Ok(()))?.0)
}

fn ranges() -> Vec<Registered> {
    let range = |storage: u32, base, len, mem| Registered {
        range: MemoryRange { storage: StorageIndex(storage), base, len, mem },
        since: 1,
    };
    vec![range(0, 1 << 32, 1 << 20, MemKind::Dram), range(1, 1 << 33, 1 << 20, MemKind::Vram(0))]
}

fn plain() -> Vec<u8> {
    encode(&header(), &spec(), &ranges(), b"nixl's own \0\xff".to_vec(), None).unwrap()
}

/// A blob whose checksum fits, of any two maps.
fn sealed(maps: &[&[u8]]) -> Vec<u8> {
    let rest = maps.concat();
    [&MAGIC[..], &WIRE_VERSION.to_be_bytes(), &crc32fast::hash(&rest).to_be_bytes(), &rest].concat()
}

fn grown() -> Vec<u8> {
    #[derive(Serialize)]
    struct LaterHeader {
        zone: Vec<u32>,
        generation: u64,
        incarnation: u64,
        agent: &'static str,
        fingerprint: Fingerprint,
    }
    #[derive(Serialize)]
    struct LaterBody {
        #[serde(with = "serde_bytes")]
        nixl: Vec<u8>,
        hints: std::collections::BTreeMap<String, u64>,
        ranges: Vec<Range>,
        layout: CacheSpec,
    }
    let Header { fingerprint, incarnation, generation, .. } = header();
    let later = LaterHeader { zone: vec![1, 2], generation, incarnation, agent: "prefill-0", fingerprint };
    let range =
        |Registered { range: MemoryRange { storage, base, len, mem }, since }| Range { storage, base, len, mem, since };
    let ranges = ranges().into_iter().map(range);
    let body = LaterBody {
        nixl: b"nixl's own \0\xff".to_vec(),
        hints: [("rails".to_owned(), 2)].into(),
        ranges: ranges.collect(),
        layout: spec(),
    };
    sealed(&[&rmp_serde::to_vec_named(&later).unwrap(), &rmp_serde::to_vec_named(&body).unwrap()])
}

#[test]
fn blobs_are_written_as_the_golden_ones_bit_for_bit() {
    for ((name, golden), written) in GOLDEN.into_iter().zip([plain(), grown()]) {
        assert!(
            golden == written,
            "{name}: the bytes have changed; a change needs a new WIRE_VERSION and docs/WIRE.md"
        );
    }
}

#[test]
fn golden_blobs_are_read_as_what_was_written() {
    for (name, golden) in GOLDEN {
        let blob = decode(golden, &spec().fingerprint).unwrap();
        assert_eq!(blob.header, header(), "{name}");
        assert_eq!(*blob.layout, spec(), "{name}");
        assert_eq!(blob.ranges.iter().collect::<Vec<_>>(), ranges(), "{name}");
        assert_eq!(blob.metadata, b"nixl's own \0\xff", "{name}");
    }
}

#[test]
fn where_a_peer_runs_travels_along_and_may_be_missing() {
    let host = Host::of_this_process();
    assert!(host.is_some());
    let blob = encode(&header(), &spec(), &ranges(), Vec::new(), host.clone()).unwrap();
    assert_eq!(decode(&blob, &spec().fingerprint).unwrap().host, host);
    assert_eq!(decode(&plain(), &spec().fingerprint).unwrap().host, None);
}

#[test]
fn a_blob_cut_off_anywhere_is_an_error() {
    let blob = plain();
    for len in 0..blob.len() {
        let error = decode(&blob[..len], &spec().fingerprint).unwrap_err();
        assert!(matches!(error, Error::BlobTruncated { .. } | Error::BlobChecksum { .. }), "{len}: {error}");
    }
    let long = [&blob[..], b"x"].concat();
    assert!(matches!(decode(&long, &spec().fingerprint), Err(Error::BlobChecksum { .. })));
}

#[test]
fn a_blob_with_any_bit_flipped_is_an_error() {
    let blob = plain();
    for bit in 0..blob.len() * 8 {
        let mut flipped = blob.clone();
        flipped[bit / 8] ^= 1 << (bit % 8);
        let error = decode(&flipped, &spec().fingerprint).unwrap_err();
        let expected = match bit / 8 {
            0..6 => matches!(error, Error::BlobMagic { .. }),
            6..8 => matches!(error, Error::BlobVersion { local: WIRE_VERSION, .. }),
            _ => matches!(error, Error::BlobChecksum { .. }),
        };
        assert!(expected, "bit {bit}: {error}");
    }
}

#[test]
fn damage_with_a_checksum_that_fits_never_panics() {
    let blob = plain();
    let rest = &blob[FIXED..];
    let mut accepted = 0;
    for at in 0..rest.len() {
        for value in [0x00, 0x7f, 0x80, 0x90, 0xc1, 0xc6, 0xcf, 0xdb, 0xdd, 0xdf, 0xff] {
            let mut bytes = rest.to_vec();
            bytes[at] = value;
            // What is still a valid blob is one of another peer.
            accepted += usize::from(decode(&sealed(&[&bytes]), &spec().fingerprint).is_ok());
        }
        assert!(decode(&sealed(&[&rest[..at]]), &spec().fingerprint).is_err(), "cut at {at}");
    }
    assert!(accepted < rest.len() * 11);
}

#[test]
fn the_fingerprint_is_compared_before_the_rest_is_decoded() {
    let header = rmp_serde::to_vec_named(&header()).unwrap();
    let blob = sealed(&[&header, b"\xc1 is no MessagePack"]);
    let mut other = spec().fingerprint;
    other.revision = "other".into();
    assert!(matches!(decode(&blob, &other), Err(Error::FingerprintMismatch { .. })));
    assert!(matches!(decode(&blob, &spec().fingerprint), Err(Error::BlobMalformed { what: "body", .. })));
}

#[test]
fn sizes_and_depths_that_are_only_claimed_cost_nothing() {
    let fingerprint = spec().fingerprint;
    // An array of 2^32 - 1 entries, a string and bytes of that length, nesting without end.
    let claims: [&[u8]; 4] =
        [b"\xdd\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", &[0x91; 100_000]];
    for claim in claims {
        let error = decode(&sealed(&[claim]), &fingerprint).unwrap_err();
        assert!(matches!(error, Error::BlobMalformed { what: "header", .. }), "{error}");
    }
    let header = rmp_serde::to_vec_named(&header()).unwrap();
    for field in ["layout", "ranges", "nixl", "unknown"] {
        for claim in claims {
            let body = [b"\x81", &rmp_serde::to_vec(field).unwrap()[..], claim].concat();
            let error = decode(&sealed(&[&header, &body]), &fingerprint).unwrap_err();
            assert!(matches!(error, Error::BlobMalformed { what: "body", .. }), "{field}: {error}");
        }
    }
    let long = vec![0; MAX_BLOB_BYTES + 1];
    assert!(matches!(decode(&long, &fingerprint), Err(Error::BlobTooLong { .. })));
}

#[test]
fn what_a_blob_says_must_hold_together() {
    let fingerprint = spec().fingerprint;
    let reencode = |header: &Header, layout: &CacheSpec, ranges: &[Registered]| {
        decode(&encode(header, layout, ranges, Vec::new(), None).unwrap(), &fingerprint)
    };
    let mut other = spec();
    other.fingerprint.revision = "other".into();
    assert!(matches!(reencode(&header(), &other, &ranges()), Err(Error::BlobMalformed { .. })));

    let mut invalid = spec();
    invalid.layers[0].parts[0].offset = u64::MAX;
    assert!(matches!(reencode(&header(), &invalid, &ranges()), Err(Error::PeerLayout { .. })));

    let mut outside = ranges();
    outside[1].range.len += 1;
    assert!(matches!(reencode(&header(), &spec(), &outside), Err(Error::RangeOutsideStorage { .. })));
    let twice = [ranges()[0], ranges()[0]];
    assert!(matches!(reencode(&header(), &spec(), &twice), Err(Error::OverlappingRanges { .. })));

    let nameless = Header { agent: "a@b".into(), ..header() };
    assert!(matches!(reencode(&nameless, &spec(), &ranges()), Err(Error::AgentName { .. })));
    let trailing = sealed(&[&plain()[FIXED..], b"\xc0"]);
    assert!(matches!(decode(&trailing, &fingerprint), Err(Error::BlobMalformed { what: "what follows the body", .. })));
}

/// Writes the golden blobs. To be run by hand when the wire version goes up:
/// `cargo test -p kvnixl write_golden -- --ignored`.
#[test]
#[ignore = "writes the files that other tests compare with"]
fn write_golden() {
    for ((name, _), bytes) in GOLDEN.into_iter().zip([plain(), grown()]) {
        let path = format!("{}/tests/data/blob_v1_{name}.bin", env!("CARGO_MANIFEST_DIR"));
        std::fs::write(path, bytes).unwrap();
    }
}
