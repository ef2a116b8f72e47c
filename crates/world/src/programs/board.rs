//! Where a simulated program says what it does: on its pod, as the real one; and to whoever watches the rehearsal, as
//! the real one's log.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicBool, Ordering},
};

use api::upgrade_plan::WaitingFor;
use futures::future::BoxFuture;
use jiff::Timestamp;
use program::board::{Board, PodBoard, StepStarted};
use tokio::sync::Notify;

use crate::inbox::Key;

use super::Call;

/// A step of a program that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramStep {
    /// When.
    pub at: Timestamp,
    /// The program: the job type or component of its pod.
    pub program: String,
    /// The node that it works for.
    pub node: String,
    /// Its pod, by name.
    pub pod: String,
    /// The step.
    pub step: StepStarted,
}

/// The board of a pod.
pub(super) struct SimulatedBoard {
    call: Call,
    pod: PodBoard,
    termination_message: Mutex<String>,
    dies_at: Option<&'static str>,
    dies: Notify,
    dead: AtomicBool,
}

impl SimulatedBoard {
    /// A board; `dies_at` is the step at which the program is to die.
    pub(super) fn new(call: &Call, dies_at: Option<&'static str>) -> Self {
        let (namespace, name): Key = crate::watched::key_of(call.pod.as_ref());
        Self {
            call: call.clone(),
            pod: PodBoard::of_simulated(call.client.clone(), &namespace, &name),
            termination_message: Mutex::default(),
            dies_at,
            dies: Notify::new(),
            dead: AtomicBool::new(false),
        }
    }

    /// Ends when the step has begun at which the program is to die.
    pub(super) async fn death(&self) {
        self.dies.notified().await;
    }

    /// The termination message of a program that was to die, also if it got to its end in the same moment.
    pub(super) fn died(&self) -> Option<String> {
        let step = self.dies_at.filter(|_| self.dead.load(Ordering::SeqCst))?;
        Some(format!("simulated failure at step {step}"))
    }

    /// The program's termination message, which is the termination message of its container.
    pub(super) fn said_last(&self) -> String {
        self.termination_message
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

impl Board for SimulatedBoard {
    fn show<'a>(&'a self, waiting: &'a [WaitingFor]) -> BoxFuture<'a, ()> {
        self.pod.show(waiting)
    }

    fn termination_message(&self, text: &str) {
        text.clone_into(&mut self.termination_message.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn begins(&self, step: StepStarted) {
        if self.dies_at == Some(step.name) {
            self.dead.store(true, Ordering::SeqCst);
            self.dies.notify_one();
        }
        self.pod.begins(step);
        self.call.world.report_step(|| ProgramStep {
            at: self.call.world.clock.now(),
            program: self.call.program().to_owned(),
            node: self.call.node.clone(),
            pod: self.call.pod.metadata.name.clone().unwrap_or_default(),
            step,
        });
    }
}
