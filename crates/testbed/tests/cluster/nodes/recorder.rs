//! What the containers of an upgrade logged and how they ended, also of pods that are gone by its end.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use api::pod::has_ended;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ListParams, LogParams},
};
use tokio::task::JoinSet;

/// How often pods are listed: Jobs keep theirs for longer.
const PAUSE: Duration = Duration::from_millis(300);
/// Shorter texts occur in logs at random.
const SHORTEST_SECRET: usize = 16;
/// The exit code of a container that was killed, and of one whose end the container runtime has not seen.
const KILLED: i32 = 137;
const UNKNOWN: i32 = 255;
/// Parts of Secrets that are none.
const PUBLIC: [&str; 3] = ["tls.crt", "ca.crt", "namespace"];

/// A pod that has ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) name: String,
    /// What each container left.
    pub(crate) messages: BTreeMap<String, String>,
    pub(crate) log: String,
}

/// Records until its tasks end.
#[derive(Clone, Default)]
pub(crate) struct Recorder(Arc<Mutex<BTreeMap<String, Ended>>>);

impl Recorder {
    pub(crate) fn start(client: Client, tasks: &mut JoinSet<()>) -> Self {
        let recorder = Self::default();
        let recording = recorder.clone();
        tasks.spawn(async move {
            loop {
                // An API server that is away is asked again.
                drop(recording.look(&client).await);
                tokio::time::sleep(PAUSE).await;
            }
        });
        recorder
    }

    async fn look(&self, client: &Client) -> kube::Result<()> {
        let pods: Api<Pod> = Api::all(client.clone());
        for pod in pods.list(&ListParams::default()).await?.items {
            let uid = pod.uid().unwrap_or_default();
            if !is_ours(&pod) || !has_ended(&pod) || self.0.lock().unwrap().contains_key(&uid) {
                continue;
            }
            let log = log(client, &pod).await?;
            let ended = Ended {
                name: pod.name_any(),
                messages: messages(&pod),
                log,
            };
            self.0.lock().unwrap().insert(uid, ended);
        }
        Ok(())
    }

    /// The pods that have ended so far.
    pub(crate) fn ended(&self) -> Vec<Ended> {
        self.0.lock().unwrap().values().cloned().collect()
    }

    /// Pods and Secrets of which a part is in the pod's log; pods that still run included.
    pub(crate) async fn leaks(&self, client: &Client) -> Vec<String> {
        let mut logs: Vec<(String, String)> = self.ended().into_iter().map(|pod| (pod.name, pod.log)).collect();
        let pods: Api<Pod> = Api::all(client.clone());
        for pod in pods.list(&ListParams::default()).await.unwrap().items {
            if is_ours(&pod) && !has_ended(&pod) {
                logs.push((pod.name_any(), log(client, &pod).await.unwrap()));
            }
        }
        assert!(logs.iter().any(|(_, log)| !log.is_empty()), "nothing was logged");
        let secrets: Api<Secret> = Api::all(client.clone());
        let mut leaks = Vec::new();
        for secret in secrets.list(&ListParams::default()).await.unwrap().items {
            for (key, value) in secret.data.iter().flatten() {
                if PUBLIC.contains(&key.as_str()) {
                    continue;
                }
                // As it is, and as the API writes it.
                let encoded = serde_json::to_value(value).unwrap();
                let text = String::from_utf8_lossy(&value.0).into_owned() + "\n" + encoded.as_str().unwrap_or_default();
                let parts = text
                    .lines()
                    .filter(|line| line.len() >= SHORTEST_SECRET && !line.starts_with("-----"));
                for part in parts {
                    let found = logs.iter().filter(|(_, log)| log.contains(part));
                    leaks.extend(found.map(|(pod, _)| format!("{} of Secret {} in {pod}", key, secret.name_any())));
                }
            }
        }
        leaks
    }
}

/// The pod belongs to the toolkit: it is the manager, or works for a plan.
pub(crate) fn is_ours(pod: &Pod) -> bool {
    let image = |pod: &Pod| {
        pod.spec
            .as_ref()
            .and_then(|spec| spec.containers.first()?.image.clone())
    };
    image(pod).is_some_and(|image| image.contains("harvester-upgrade-toolkit"))
}

fn messages(pod: &Pod) -> BTreeMap<String, String> {
    let status = pod.status.clone().unwrap_or_default();
    let states = status.container_statuses.unwrap_or_default().into_iter();
    states
        .filter_map(|state| {
            let ended = state.state?.terminated?;
            // What dies with its node, or is killed, cannot say anything.
            let was_killed = ended.exit_code == KILLED || ended.reason.as_deref() == Some("ContainerStatusUnknown");
            (!was_killed && ended.exit_code != UNKNOWN).then(|| (state.name, ended.message.unwrap_or_default()))
        })
        .collect()
}

/// What all containers of a pod have logged, also before they were restarted.
async fn log(client: &Client, pod: &Pod) -> kube::Result<String> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().unwrap_or_default());
    let spec = pod.spec.clone().unwrap_or_default();
    let containers = spec
        .init_containers
        .unwrap_or_default()
        .into_iter()
        .chain(spec.containers);
    let mut text = String::new();
    for container in containers {
        for previous in [true, false] {
            let which = LogParams {
                container: Some(container.name.clone()),
                previous,
                ..LogParams::default()
            };
            match pods.logs(&pod.name_any(), &which).await {
                Ok(log) => text += &log,
                // There was none before, it was never started, or it has gone meanwhile.
                Err(kube::Error::Api(status)) if status.code == 400 || status.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(text)
}
