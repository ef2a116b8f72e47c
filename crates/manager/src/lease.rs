//! Leader election by a Lease, and the fence that every write passes.
//!
//! The algorithm is that of client-go: the leader renews the lease; others take it over once it has
//! not been renewed for its duration. Time is measured on the own clock since a change was seen, never compared with
//! another machine's. The lease's own timestamps are for users.
//!
//! What is promised: of several managers one writes, but for one request that was under way when its manager was stopped or
//! cut off, and that is sent or arrives after another one has taken over. Each request has the fence right before it, and
//! requests follow one another; but no fence on this side of the network can stop the one that has passed it. So a
//! request that comes late does no harm:
//!
//! - A change carries the resourceVersion, and a deletion the UID, that was read before the fence, while this manager led:
//!   it is refused when another client has changed the object since, or another one has its name.
//! - A creation has a fixed name and an owner: an Event that is reported twice exists once, and a Job that exists is adopted.
//!   One case is not refused: if the object was created, has done its work and was deleted again
//!   in the meantime, it is created again. Its pods run programs that can be repeated, and the next pass observes them.
//!
//! Not behind the fence, since all replicas serve: the Secret with the webhook's certificate and the authority in the two webhook
//! configurations, which any replica writes ([`crate::tls::managed`]). Both carry the resourceVersion and are idempotent: of
//! two replicas one wins, and the other takes over what it finds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use api::names;
use clock::Clock;
use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta},
};
use kube::{Api, Client, api::PostParams};
use tokio::sync::Notify;

use crate::act::ActError;

/// How long a lease is held, and how often it is renewed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// A lease that has not been renewed for this long is free.
    pub duration: Duration,
    /// A holder that could not renew for this long stops to write: well before others may start.
    pub renew_deadline: Duration,
    /// How often a holder renews.
    pub renew_period: Duration,
    /// How often others look, and how soon a failed renewal is tried again.
    pub retry_period: Duration,
}

impl LeaseTiming {
    /// A lease of this duration, renewed three times while it lasts.
    #[must_use]
    pub fn with_duration(duration: Duration) -> Self {
        Self {
            duration,
            renew_deadline: duration * 2 / 3,
            renew_period: duration / 3,
            retry_period: duration / 15,
        }
    }
}

impl Default for LeaseTiming {
    fn default() -> Self {
        Self::with_duration(Duration::from_secs(30))
    }
}

/// Whether this manager may write.
#[derive(Clone)]
pub struct Leadership {
    clock: Clock,
    /// On the own clock, in milliseconds: until when this manager may write. `u64::MAX` without election.
    valid_until: Arc<AtomicU64>,
    gained: Arc<Notify>,
}

impl Leadership {
    /// Without election: always.
    #[must_use]
    pub fn unconditional(clock: Clock) -> Self {
        Self {
            clock,
            valid_until: Arc::new(AtomicU64::new(u64::MAX)),
            gained: Arc::default(),
        }
    }

    /// With election: not yet.
    #[must_use]
    pub fn contested(clock: Clock) -> Self {
        Self {
            clock,
            valid_until: Arc::new(AtomicU64::new(0)),
            gained: Arc::default(),
        }
    }

    /// This manager may write now.
    #[must_use]
    pub fn holds(&self) -> bool {
        millis(self.clock.elapsed()) < self.valid_until.load(Ordering::Acquire)
    }

    /// Refuses requests without the lease.
    ///
    /// # Errors
    /// This manager may not write.
    pub fn fence(&self) -> Result<(), ActError> {
        if self.holds() { Ok(()) } else { Err(ActError::NotLeader) }
    }

    /// Waits until this manager may write.
    pub async fn gained(&self) {
        while !self.holds() {
            self.gained.notified().await;
        }
    }

    pub(crate) fn extend(&self, until: Duration) {
        self.valid_until.store(millis(until), Ordering::Release);
        self.gained.notify_one();
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// What was last seen of the lease, and when that was.
struct LastObserved {
    holder: String,
    renewed: Option<MicroTime>,
    transitions: i32,
    at: Duration,
}

/// A manager that competes for the lease.
#[derive(Clone, Copy)]
struct Candidate<'a> {
    identity: &'a str,
    timing: LeaseTiming,
    clock: &'a Clock,
}

/// Competes for the lease; returns after this manager had it and lost it.
pub async fn compete(client: Client, namespace: &str, identity: &str, timing: LeaseTiming, leadership: &Leadership) {
    let leases: Api<Lease> = Api::namespaced(client, namespace);
    let clock = leadership.clock.clone();
    let candidate = Candidate {
        identity,
        timing,
        clock: &clock,
    };
    let mut last_observed: Option<LastObserved> = None;
    let mut mine: Option<Lease> = None;
    let mut held = false;
    loop {
        let started = clock.elapsed();
        let outcome = match renew(&leases, candidate, mine.take()).await {
            Ok(None) => attempt(&leases, candidate, &mut last_observed).await,
            renewed => renewed,
        };
        match outcome {
            Ok(Some(lease)) => {
                mine = Some(lease);
                held = true;
                leadership.extend(started + timing.renew_deadline);
                clock.sleep(timing.renew_period).await;
                continue;
            }
            Ok(None) if held => return,
            Ok(None) => {}
            Err(error) => tracing::debug!(%error, "failed to renew the lease"),
        }
        if held && !leadership.holds() {
            return;
        }
        clock.sleep(timing.retry_period).await;
    }
}

/// Renews a lease that is held without reading it first: no other manager writes it. `None` when one did.
async fn renew(
    leases: &Api<Lease>,
    candidate: Candidate<'_>,
    mine: Option<Lease>,
) -> Result<Option<Lease>, kube::Error> {
    let Some(mut lease) = mine else { return Ok(None) };
    let spec = lease.spec.clone().unwrap_or_default();
    lease.spec = Some(candidate.claim(Some(&spec)));
    written(leases.replace(names::LEASE, &PostParams::default(), &lease).await)
}

/// A lease that was written, or nothing when another manager was faster.
fn written(result: Result<Lease, kube::Error>) -> Result<Option<Lease>, kube::Error> {
    match result {
        Ok(lease) => Ok(Some(lease)),
        Err(kube::Error::Api(status)) if status.code == 409 || status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
}

/// One attempt to take the lease; the lease if this manager has it now.
async fn attempt(
    leases: &Api<Lease>,
    candidate: Candidate<'_>,
    last_observed: &mut Option<LastObserved>,
) -> Result<Option<Lease>, kube::Error> {
    let Some(mut lease) = leases.get_opt(names::LEASE).await? else {
        let metadata = ObjectMeta {
            name: Some(names::LEASE.to_owned()),
            ..ObjectMeta::default()
        };
        let lease = Lease {
            metadata,
            spec: Some(candidate.claim(None)),
        };
        return written(leases.create(&PostParams::default(), &lease).await);
    };
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.clone().unwrap_or_default();
    if holder != candidate.identity && !holder.is_empty() {
        let known = last_observed
            .as_ref()
            .filter(|observed| observed.holder == holder && observed.renewed == spec.renew_time);
        let Some(known) = known else {
            *last_observed = Some(LastObserved {
                holder,
                renewed: spec.renew_time.clone(),
                transitions: spec.lease_transitions.unwrap_or_default(),
                at: candidate.clock.elapsed(),
            });
            return Ok(None);
        };
        let duration = spec
            .lease_duration_seconds
            .and_then(|seconds| u64::try_from(seconds).ok());
        if candidate.clock.elapsed() < known.at + duration.map_or(candidate.timing.duration, Duration::from_secs) {
            return Ok(None);
        }
        tracing::info!(from = %known.holder, transitions = known.transitions + 1, "taking over the lease");
    }
    lease.spec = Some(candidate.claim(Some(&spec)));
    // The version read above goes along: of two that try, one is refused.
    written(leases.replace(names::LEASE, &PostParams::default(), &lease).await)
}

impl Candidate<'_> {
    /// What this manager would write into the lease.
    fn claim(self, before: Option<&LeaseSpec>) -> LeaseSpec {
        let now = MicroTime(self.clock.now());
        let mine = before.is_some_and(|before| before.holder_identity.as_deref() == Some(self.identity));
        let transitions = before.and_then(|before| before.lease_transitions).unwrap_or_default();
        LeaseSpec {
            holder_identity: Some(self.identity.to_owned()),
            lease_duration_seconds: i32::try_from(self.timing.duration.as_secs()).ok(),
            acquire_time: if mine {
                before.and_then(|b| b.acquire_time.clone())
            } else {
                Some(now.clone())
            },
            renew_time: Some(now),
            lease_transitions: Some(if mine || before.is_none() {
                transitions
            } else {
                transitions + 1
            }),
            ..LeaseSpec::default()
        }
    }
}
