//! How many lines the collector takes in a second, and how much memory it needs: 300 logs in a folder of this machine.
//! Measures; asserts nothing. `bench/logs` runs it.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a benchmark prints and reads the clock"
)]

use std::{sync::Arc, time::Instant};

use logs::{
    Class, Collector, Folder, Limits, Nanos, Settings, Store,
    collector::{ContainerFacts, ContainerState, Observed, PodFacts, Response},
    line::{self, SECOND},
};

const STREAMS: usize = 300;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().unwrap();
    let megabytes: u64 = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(256);
    let mut store = Store::open(Arc::new(Folder::new(folder)), Limits::default(), 0).unwrap();
    let mut collector = Collector::new(Settings::default(), store.known());
    let observed = Observed {
        pods: (0..STREAMS).map(pod).collect(),
    };
    let mut random = fastrand::Rng::with_seed(1);
    let started = Instant::now();
    let (mut now, mut bytes, mut generating) = (1_773_374_229 * SECOND, 0_u64, 0.0);
    while bytes < megabytes * 1_000_000 {
        now += SECOND / 4;
        loop {
            let step = collector.next(now, &observed, store.has_room());
            if step.requests.is_empty() {
                break;
            }
            for request in step.requests {
                let clock = Instant::now();
                let text = text(now, &mut random);
                generating += clock.elapsed().as_secs_f64();
                bytes += text.len() as u64;
                for response in [Response::Bytes(text.as_bytes()), Response::End] {
                    if let Some(append) = collector.accept(now, request.id, response) {
                        store.append(append);
                    }
                }
            }
            store.commit(now).unwrap();
        }
    }
    let seconds = started.elapsed().as_secs_f64() - generating;
    let counters = collector.counters();
    let megabytes = counters.bytes as f64 / 1e6;
    println!(
        "{STREAMS} logs, {} lines, {megabytes:.0} MB in {seconds:.1} s: {:.1} MB/s",
        counters.lines,
        megabytes / seconds
    );
    let stored = store.stored_bytes() as f64 / 1e6;
    println!("on the volume: {stored:.1} MB, a {:.0}th", megabytes / stored);
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap_or("VmHWM: unknown");
    println!("peak memory: {}", peak.trim_start_matches("VmHWM:").trim());
}

fn pod(number: usize) -> PodFacts {
    PodFacts {
        namespace: "kube-system".to_owned(),
        name: format!("pod-{number}"),
        uid: format!("uid-{number}"),
        class: if number < 20 { Class::Own } else { Class::System },
        component: "bench".to_owned(),
        node: None,
        created: 0,
        is_deleting: false,
        is_job: false,
        containers: vec![ContainerFacts {
            name: "c".to_owned(),
            instance: 0,
            state: ContainerState::Running,
            has_previous: false,
        }],
    }
}

/// About 64 KiB of a log, all of them new: each response is read as another file.
fn text(now: Nanos, random: &mut fastrand::Rng) -> String {
    let mut text = String::with_capacity(70 * 1024);
    let mut time = now;
    while text.len() < 64 * 1024 {
        time += 1000 + random.i64(0..1000);
        text.push_str(&line::timestamp(time).to_string());
        let (kind, number) = (random.u8(0..4), random.u32(..));
        let line = match kind {
            0 => format!(
                " level=info msg=\"reconciled volume\" controller=longhorn-volume volume=pvc-{number:08x} state=attached\n"
            ),
            1 => format!(
                " I0313 03:57:09.{number:09} 1 reflector.go:389] k8s.io/client-go: Watch close - total {number} items received\n"
            ),
            2 => format!(
                " {{\"level\":\"warn\",\"ts\":{number},\"msg\":\"request retried\",\"endpoint\":\"https://10.0.0.1:2379/v3/kv\",\"token\":\"{number:x}\"}}\n"
            ),
            _ => format!(
                " time=2026 level=debug msg=\"sync of fleet-local/local finished in {number} ms, generation {number}\"\n"
            ),
        };
        text.push_str(&line);
    }
    text
}
