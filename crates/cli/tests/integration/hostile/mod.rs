//! Hostile clients, against every server that we ship, as processes: well-behaved clients are served, the servers end
//! what takes too long, and memory stays within what the chart gives.

mod attacks;
mod client;
mod fat;
mod servers;

use attacks::complaints;
use client::{EVIL, GOOD, PATIENCE, hung_up, status};
use futures::future::join_all;
use rustix::process::{Resource, getrlimit, setrlimit};
use serde_json::{Map, Value, json};
use servers::{Manager, One, Server, chart_limit, post, review};
use tokio::{io::AsyncWriteExt, time::timeout};

/// Many connections are many files.
fn allow_many_files() {
    let mut files = getrlimit(Resource::Nofile);
    files.current = files.maximum;
    setrlimit(Resource::Nofile, files).unwrap();
}

/// All attacks on one server, one after the other; then all that it has to end by itself.
async fn withstand(server: &Server) {
    let (mut doomed, mut under_way) = (Vec::new(), Vec::new());
    for attack in attacks::ATTACKS {
        let mut open_connections = attack.begin(server).await;
        assert!(
            server.serves(GOOD).await,
            "{}: no client is served during {attack:?}",
            server.name
        );
        assert!(
            server.serves(EVIL).await,
            "{}: {attack:?} hurts its neighbours",
            server.name
        );
        doomed.append(&mut open_connections.doomed);
        under_way.push((attack, open_connections.senders()));
    }
    for (attack, senders) in under_way {
        let complaints = complaints(senders).await;
        assert_eq!(complaints, Vec::<String>::new(), "{}: {attack:?}", server.name);
    }
    for (number, stream) in doomed.iter_mut().enumerate() {
        assert!(
            hung_up(stream).await,
            "{}: connection {number} is kept for ever",
            server.name
        );
    }
    assert!(
        server.serves(GOOD).await,
        "{}: it does not serve afterwards",
        server.name
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_server_withstands_every_attack() {
    allow_many_files();
    let (manager, repository, secure, rehearsal) = tokio::join!(
        Manager::start(),
        One::repository(false),
        One::repository(true),
        One::rehearsal()
    );
    let [webhook, metrics, health] = manager.servers();
    let all = [
        webhook,
        metrics,
        health,
        &repository.server,
        &secure.server,
        &rehearsal.server,
    ];
    join_all(all.map(withstand)).await;
    let processes = [
        ("manager", &manager.process),
        ("repository", &repository.process),
        ("repository over TLS", &secure.process),
    ];
    for (name, process) in processes {
        let (peak, limit) = (process.peak(), chart_limit());
        eprintln!("{name}: at most {} MiB of {}", peak >> 20, limit >> 20);
        assert!(peak < limit, "the {name} took {peak} bytes");
    }
}

/// Bodies of the largest size that is taken, each made to become as large as possible in memory.
fn bombs() -> Vec<String> {
    const SIZE: usize = 3_000_000;
    let fill = |make: &dyn Fn(usize) -> String, each: usize| (0..SIZE / each).map(make).collect::<Vec<_>>().join(",");
    let of = |name: &str, content: String| {
        let mut review = review();
        review["request"]["oldObject"][name] = json!("HERE");
        review.to_string().replacen("\"HERE\"", &content, 1)
    };
    let metadata = |field: &str, content: String| of("metadata", format!("{{\"name\":\"up\",\"{field}\":{content}}}"));
    vec![
        // What made 330 MB of 3 MB: objects with one field, in a part that is never read.
        of("unknown", format!("[{}]", fill(&|_| "{\"a\":1}".to_owned(), 8))),
        metadata("managedFields", format!("[{}]", fill(&|_| "{}".to_owned(), 3))),
        metadata(
            "managedFields",
            format!(
                "[{{\"fieldsV1\":{{{}}}}}]",
                fill(&|n| format!("\"{n}\":{{\"a\":{{}}}}"), 20)
            ),
        ),
        metadata(
            "annotations",
            format!("{{{}}}", fill(&|n| format!("\"{n:x}\":\"\""), 12)),
        ),
        metadata("finalizers", format!("[{}]", fill(&|_| "\"\"".to_owned(), 3))),
        of(
            "status",
            format!("{{\"conditions\":[{}]}}", fill(&|_| "{}".to_owned(), 3)),
        ),
        of(
            "status",
            format!(
                "{{\"nodeUpgradeStatuses\":{{{}}}}}",
                fill(&|n| format!("\"{n:x}\":{{}}"), 12)
            ),
        ),
        format!("[{}]", fill(&|_| "[]".to_owned(), 3)),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s04_no_review_takes_more_memory_than_the_chart_gives() {
    let manager = Manager::start().await;
    let webhook = &manager.webhook;
    let before = manager.process.peak();
    let mut asked = Vec::new();
    for bomb in bombs() {
        assert!(bomb.len() < 3 * 1024 * 1024, "{} bytes", bomb.len());
        let request = post(webhook.path, &bomb);
        asked.push(async move {
            // Many at once, from one address and from several.
            let at_once = (0..8u8).map(|number| {
                let from = std::net::Ipv4Addr::new(127, 6, 6, number % 4);
                webhook.door.ask(from, request.as_bytes())
            });
            join_all(at_once).await
        });
    }
    let asked = timeout(PATIENCE, join_all(asked)).await;
    let (peak, limit) = (manager.process.peak(), chart_limit());
    eprintln!(
        "from {} MiB to at most {} MiB of {}",
        before >> 20,
        peak >> 20,
        limit >> 20
    );
    assert!(peak < limit, "it took {peak} bytes");
    let asked = asked.expect("all are answered or closed");
    let answered = asked.iter().flatten().flatten();
    let answered = answered.filter(|answer| status(answer) == 200).count();
    assert!(answered > 0, "none got so far as to be understood");
    assert!(webhook.serves(GOOD).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s04_a_review_of_a_large_cluster_is_still_answered() {
    let manager = Manager::start().await;
    let nodes: Map<String, Value> = (0..2000)
        .map(|number| {
            let node = json!({"state": "Done", "message": "x".repeat(200), "startedAt": "2026-03-13T03:57:09Z",
                "finishedAt": "2026-03-13T03:58:09Z"});
            (format!("node-{number}"), node)
        })
        .collect();
    let mut review = review();
    review["request"]["oldObject"]["status"] = json!({"nodeUpgradeStatuses": nodes});
    let owned: Map<String, Value> = (0..20_000)
        .map(|number| (format!("f:{number}"), json!({"f:x": {}})))
        .collect();
    review["request"]["oldObject"]["metadata"]["managedFields"] = json!([{"manager": "m", "fieldsV1": owned}]);
    let webhook = &manager.webhook;
    let answer = webhook
        .door
        .ask(GOOD, post(webhook.path, &review.to_string()).as_bytes())
        .await
        .unwrap();
    assert!(answer.contains("\"allowed\":true"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_unfinished_bodies_keep_no_review_waiting() {
    let manager = Manager::start().await;
    let webhook = &manager.webhook;
    let open = format!(
        "POST {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2000000\r\n\r\n{}",
        webhook.path,
        " ".repeat(100_000)
    );
    let mut unfinished = Vec::new();
    for number in 0..128u8 {
        let from = std::net::Ipv4Addr::new(127, 6, 6, number % 16);
        let Some(mut stream) = webhook.door.enter(from).await else {
            continue;
        };
        let _ = stream.write_all(open.as_bytes()).await;
        unfinished.push(stream);
    }
    assert!(unfinished.len() >= 64, "only {} came in", unfinished.len());
    // The API server gives up after 10 seconds; a busy machine may need some of them.
    let served = timeout(std::time::Duration::from_secs(9), webhook.serves(GOOD)).await;
    assert_eq!(served, Ok(true), "a review is not answered in time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s05_half_requests_cost_the_health_port_nothing() {
    allow_many_files();
    let manager = Manager::start().await;
    let health = &manager.health;
    let before = manager.process.peak();
    let mut halves = Vec::new();
    for _ in 0..4000 {
        let Some(mut stream) = health.door.knock(EVIL).await else {
            break;
        };
        let _ = stream
            .write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx: ")
            .await;
        halves.push(stream);
    }
    assert!(health.serves(GOOD).await && health.serves(EVIL).await);
    let grown = manager.process.peak() - before;
    eprintln!("{} half requests cost {} KiB", halves.len(), grown >> 10);
    assert!(grown < 16 << 20, "{} half requests cost {grown} bytes", halves.len());
}
