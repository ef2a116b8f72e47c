//! How fast the in-process door is: writers and watchers as in a rehearsal. `cargo run --release -p apiserver --example throughput`.

use std::{sync::Arc, time::Duration};

use apiserver::{ApiServer, Config};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Node};
use kube::{
    Api,
    api::{Patch, PatchParams, PostParams, WatchParams},
};
use serde_json::json;

const WATCHES: usize = 60;
const OBJECTS: usize = 100;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let writes: usize = std::env::args().nth(1).map_or(Ok(20_000), |text| text.parse())?;
    let base: jiff::Timestamp = "2026-11-15T12:00:00Z".parse()?;
    let server = ApiServer::new(Config::new(Arc::new(move || base)));
    let client = server.client();
    let nodes: Api<Node> = Api::all(client.clone());
    for number in 0..OBJECTS {
        let labels: serde_json::Value = (0..30)
            .map(|label| (format!("example.io/label-{label}"), json!("value")))
            .collect();
        let node = json!({"metadata": {"name": format!("n{number}"), "labels": labels}, "status": {"conditions": [
            {"type": "Ready", "status": "True"}, {"type": "DiskPressure", "status": "False"}]}});
        nodes
            .create(&PostParams::default(), &serde_json::from_value(node)?)
            .await?;
    }
    for number in 0..WATCHES {
        // A few watch what is written, the others something else.
        if number % 10 == 0 {
            let stream = nodes.watch(&WatchParams::default(), "0").await?.boxed();
            tokio::spawn(stream.try_for_each(|_| async { Ok(()) }));
        } else {
            let maps: Api<ConfigMap> = Api::all(client.clone());
            let stream = maps.watch(&WatchParams::default(), "0").await?.boxed();
            tokio::spawn(stream.try_for_each(|_| async { Ok(()) }));
        }
    }
    // A program of its own: it may look at the clock.
    #[allow(clippy::disallowed_methods)]
    let start = std::time::Instant::now();
    for number in 0..writes {
        let patch =
            json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": number.to_string()}]}});
        nodes
            .patch_status(
                &format!("n{}", number % OBJECTS),
                &PatchParams::default(),
                &Patch::Strategic(patch),
            )
            .await?;
        if number % 50 == 0 {
            tokio::time::sleep(Duration::ZERO).await;
        }
    }
    let took = start.elapsed();
    #[allow(clippy::print_stdout)]
    {
        println!(
            "{writes} writes, {WATCHES} watches: {took:?}, {:?} per write",
            took / u32::try_from(writes)?
        );
    }
    Ok(())
}
