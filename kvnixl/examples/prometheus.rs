//! Serves what an agent counts as Prometheus text, on a loopback port for a few seconds.
//!
//! `cargo run -p kvnixl --example prometheus [seconds]`; without seconds the text is printed once.

use std::error::Error;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use kvnixl::{Agent, BUCKET_SECONDS, Limits, LoopbackNetwork, TransferOptions};
use kvplan::{Descriptor, LocalPlan, Op};
use kvspec::{CacheSpec, StorageIndex};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusHandle};

fn main() -> Result<(), Box<dyn Error>> {
    // Before the first agent: what is counted earlier reaches no recorder.
    let handle = PrometheusBuilder::new().set_buckets(&BUCKET_SECONDS)?.install_recorder()?;

    // Two workers of one process; `Agent::nixl` makes real ones, which count the same.
    let network = LoopbackNetwork::new();
    let prefill = worker("prefill-0", &network)?;
    let decode = worker("decode-0", &network)?;
    let peer = decode.connect(&prefill.export()?)?;
    for block in 0..4 {
        let (local_storage, remote_storage) = (StorageIndex(0), StorageIndex(0));
        let (local_offset, remote_offset) = (block * 1024, (3 - block) * 1024);
        let descriptor = Descriptor { local_storage, remote_storage, local_offset, remote_offset, len: 1024 };
        let options = TransferOptions::default().request(format!("request-{block}")).notify(*b"done");
        decode.start(&peer, Op::Read, &[descriptor], options)?.wait(Duration::from_secs(10))?;
    }
    println!("{} notifications", prefill.notifications()?.len());

    match std::env::args().nth(1) {
        Some(seconds) => serve(&handle, Duration::from_secs(seconds.parse()?)),
        None => {
            print!("{}", handle.render());
            Ok(())
        }
    }
}

fn worker(name: &str, network: &LoopbackNetwork) -> Result<Agent, Box<dyn Error>> {
    let cache = Box::leak(vec![0_u8; 4096].into_boxed_slice());
    let spec: CacheSpec = serde_json::from_value(serde_json::json!({
        "version": 1, "fingerprint": {"model": "org/model"},
        "storages": [{"base": cache.as_mut_ptr().expose_provenance(), "len": 4096, "mem": "dram"}],
        "groups": [{"pool": 0, "block_tokens": 16, "num_blocks": 4}],
        "layers": [{"name": "model.layers.0", "group": 0, "kind": "mla",
            "parts": [{"name": "latent", "storage": 0, "offset": 0, "block_stride": 1024,
                "sharding": "replicated", "units": {"count": 1, "stride": 1024},
                "tokens": [{"count": 16, "stride": 64}], "content": 64}]}],
    }))?;
    let agent = Agent::loopback(name, network, Limits::default())?;
    // SAFETY: the memory is never freed, and nothing else touches it.
    unsafe { agent.register(&LocalPlan::new(&spec.validate()?))? };
    Ok(agent)
}

/// Answers every request with the text, whatever it asks for.
fn serve(handle: &PrometheusHandle, lifetime: Duration) -> Result<(), Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    println!("http://{}/metrics for {lifetime:?}", listener.local_addr()?);
    let start = Instant::now();
    while start.elapsed() < lifetime {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false)?;
                stream.set_read_timeout(Some(Duration::from_secs(1)))?;
                // What a scraper asks fits one read.
                let _ = stream.read(&mut [0; 4096]);
                let text = handle.render();
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nConnection: close\r\n";
                // A scraper that went away is no reason to stop.
                let _ = write!(stream, "{head}Content-Length: {}\r\n\r\n{text}", text.len());
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(Duration::from_millis(10)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
