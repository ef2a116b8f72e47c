//! What a connection is doing, and for how long it may.

use std::{future::pending, sync::Arc};

use tokio::{sync::watch, time::sleep};

use crate::{Limits, Place};

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing has come yet, or part of the head of a request.
    Head,
    /// A request is read or answered: these have limits of their own.
    Request,
    /// It rests.
    Idle,
}

/// A connection, seen by all that take part in serving it.
#[derive(Clone, Debug)]
pub(crate) struct Connection {
    phase: Arc<watch::Sender<Phase>>,
    place: Arc<Place>,
}

/// A request that is under way; when this is dropped, its answer is sent.
#[derive(Debug)]
pub(crate) struct UnderWay(Connection);

impl Connection {
    pub(crate) fn new(place: Place) -> Self {
        Self {
            phase: Arc::new(watch::Sender::new(Phase::Head)),
            place: Arc::new(place),
        }
    }

    pub(crate) fn is_crowded(&self) -> bool {
        self.place.is_crowded()
    }

    /// Something came in.
    pub(crate) fn heard(&self) {
        self.phase.send_if_modified(|phase| {
            let is_new = *phase == Phase::Idle;
            if is_new {
                *phase = Phase::Head;
            }
            is_new
        });
    }

    /// The head of a request is there.
    pub(crate) fn begin(&self) -> UnderWay {
        self.phase.send_replace(Phase::Request);
        UnderWay(self.clone())
    }

    /// All of a request is there.
    pub(crate) fn is_answered(&self) {
        self.place.set_answered(true);
    }

    /// Returns once the connection has to end: it took too long, or another one has replaced it.
    pub(crate) async fn over(&self, limits: &Limits) -> &'static str {
        tokio::select! {
            biased;
            () = self.place.lost() => "another connection has replaced it",
            why = self.late(limits) => why,
        }
    }

    async fn late(&self, limits: &Limits) -> &'static str {
        let mut phases = self.phase.subscribe();
        loop {
            let phase = *phases.borrow_and_update();
            let late = async {
                match phase {
                    Phase::Head => {
                        sleep(limits.header_time).await;
                        "a request was not received in time"
                    }
                    Phase::Idle => {
                        sleep(limits.idle).await;
                        "it rested for too long"
                    }
                    Phase::Request => pending().await,
                }
            };
            tokio::select! {
                biased;
                changed = phases.changed() => if changed.is_err() { return pending().await },
                why = late => return why,
            }
        }
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.place.set_answered(false);
        self.0.phase.send_replace(Phase::Idle);
    }
}
