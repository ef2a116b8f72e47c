//! Where a program shows what it waits for: an annotation of its pod, and the termination message.

use std::{
    fmt,
    path::PathBuf,
    sync::{Mutex, PoisonError},
};

use api::{annotations, upgrade_plan::WaitingFor};
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client,
    api::{Patch, PatchParams},
};
use serde_json::json;

/// A step that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepStarted {
    /// Its name.
    pub name: &'static str,
    /// Which it is, from one.
    pub number: usize,
    /// Of how many.
    pub count: usize,
}

impl fmt::Display for StepStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} of {})", self.name, self.number, self.count)
    }
}

/// Where users and the manager see what a program does. Reporting is best effort: it never fails a step.
pub trait Board: Send + Sync {
    /// Shows what is waited for; nothing when the list is empty.
    fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()>;
    /// Leaves a termination message: the termination message of the container.
    fn termination_message(&self, text: &str);
    /// A step begins. It is in the log, and most steps are short: nothing is written for it alone.
    fn begins(&self, _: StepStarted) {}
}

/// Shows nothing: for tests and for programs that are run manually.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoBoard;

impl Board for NoBoard {
    fn show<'a>(&'a self, _: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
        Box::pin(std::future::ready(()))
    }

    fn termination_message(&self, _: &str) {}
}

/// The pod that the program runs in.
pub struct PodBoard {
    pods: Api<Pod>,
    name: String,
    step: Mutex<Option<StepStarted>>,
    termination_log: Option<PathBuf>,
}

impl PodBoard {
    /// The board of a pod. `termination_log` is the file whose content the kubelet reports.
    #[must_use]
    pub fn new(client: Client, namespace: &str, name: &str, termination_log: impl Into<PathBuf>) -> Self {
        Self {
            pods: Api::namespaced(client, namespace),
            name: name.to_owned(),
            step: Mutex::default(),
            termination_log: Some(termination_log.into()),
        }
    }

    /// The board of a pod of a simulated cluster, whose containers have no files.
    #[must_use]
    pub fn of_simulated(client: Client, namespace: &str, name: &str) -> Self {
        Self {
            pods: Api::namespaced(client, namespace),
            name: name.to_owned(),
            step: Mutex::default(),
            termination_log: None,
        }
    }
}

impl Board for PodBoard {
    fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let text = (!waiting.is_empty()).then(|| serde_json::to_string(waiting).unwrap_or_default());
            let step = *self.step.lock().unwrap_or_else(PoisonError::into_inner);
            let step = step.map(|step| step.to_string());
            let patch = json!({"metadata": {"annotations": {annotations::WAITING_FOR: text, annotations::STEP: step}}});
            // By the subresource: a client that may patch pods themselves may change the images of all in the namespace.
            let shown = self
                .pods
                .patch_status(&self.name, &PatchParams::default(), &Patch::Merge(&patch))
                .await;
            if let Err(error) = shown {
                tracing::debug!(%error, pod = self.name, "failed to report waits");
            }
        })
    }

    fn begins(&self, step: StepStarted) {
        *self.step.lock().unwrap_or_else(PoisonError::into_inner) = Some(step);
    }

    fn termination_message(&self, text: &str) {
        let Some(file) = &self.termination_log else { return };
        // The kubelet reads the first 4096 bytes.
        let end = text
            .char_indices()
            .map(|(at, c)| at + c.len_utf8())
            .take_while(|end| *end <= 4096)
            .last();
        if let Err(error) = std::fs::write(file, &text[..end.unwrap_or(0)]) {
            tracing::debug!(%error, path = %file.display(), "failed to leave a termination message");
        }
    }
}
