//! When what is planned for one spec holds for another.

use kvspec::{CacheSpec, Shard, ValidSpec};

fn worker() -> CacheSpec {
    let layer = |index: u64| {
        serde_json::json!({"name": format!("layers.{index}"), "group": 0, "kind": "mla", "parts": [{
            "name": "latent", "storage": 0, "offset": index * 1024, "block_stride": 2048, "sharding": "replicated",
            "units": {"count": 1, "stride": 1024}, "tokens": [{"count": 16, "stride": 64}], "content": 64}]})
    };
    serde_json::from_value(serde_json::json!({
        "version": 1, "fingerprint": {"model": "org/model"},
        "storages": [{"base": 4096, "len": 8192, "mem": "dram"}],
        "groups": [{"pool": 0, "block_tokens": 16, "num_blocks": 4}],
        "layers": [layer(0), layer(1)],
    }))
    .unwrap()
}

fn changed(change: impl FnOnce(&mut CacheSpec)) -> ValidSpec {
    let mut spec = worker();
    change(&mut spec);
    spec.validate().unwrap()
}

#[test]
fn places_of_memory_and_layers_that_stay_or_are_left_out_do_not_matter() {
    let here = worker().validate().unwrap();
    assert!(here.has_caches_of(&here.clone()));
    assert!(here.has_caches_of(&changed(|spec| spec.storages[0].base = 1 << 40)));
    assert!(here.has_caches_of(&changed(|spec| spec.layers[1].transfer = false)));
    assert!(here.has_caches_of(&changed(|spec| drop(spec.layers.remove(0)))));
    assert!(!changed(|spec| drop(spec.layers.remove(0))).has_caches_of(&here));
}

#[test]
fn another_model_rank_storage_or_place_of_a_layer_does() {
    let here = worker().validate().unwrap();
    let changes: [fn(&mut CacheSpec); 7] = [
        |spec| spec.fingerprint.model = "org/other".into(),
        |spec| spec.topology.tp = Shard { rank: 1, size: 2 },
        |spec| spec.storages[0].len += 1,
        |spec| spec.storages[0].shared = true,
        |spec| spec.groups[0].num_blocks = 3,
        |spec| spec.layers[1].name = "layers.2".into(),
        |spec| spec.layers.swap(0, 1),
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let planned = changed(change);
        // The order of layers is no place.
        assert_eq!(here.has_caches_of(&planned), index == 6, "change {index}");
    }
    let exchanged = changed(|spec| {
        spec.layers[0].parts[0].offset = 1024;
        spec.layers[1].parts[0].offset = 0;
    });
    assert!(!here.has_caches_of(&exchanged));
}
