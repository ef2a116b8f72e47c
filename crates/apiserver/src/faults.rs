//! Faults as data: what a fault plan does with a write. The plan decides; the server carries it out.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::{history::Verb, identity::Identity, kind::ResourceId};

/// One write, before it is done.
#[derive(Debug)]
pub struct WriteAttempt<'a> {
    /// Number among all write requests, from 1.
    pub sequence: u64,
    /// Number among the write requests of this user, from 1.
    pub of_user: u64,
    /// The user.
    pub who: &'a Identity,
    /// The request.
    pub verb: Verb,
    /// Of which resource.
    pub resource: &'a ResourceId,
    /// Namespace, empty for cluster-scoped objects.
    pub namespace: &'a str,
    /// Name; empty for creates and collections.
    pub name: &'a str,
    /// `status`, `scale` …
    pub subresource: Option<&'a str>,
}

/// What happens to a write.
#[derive(Debug, Clone)]
pub enum Fault {
    /// Nothing: it goes through.
    None,
    /// It is refused with this status code and not applied.
    Reject(u16),
    /// It is refused with a 409 as if another write had come first.
    ConflictBefore,
    /// It is applied, but the client sees a broken connection.
    LoseReply,
    /// It is applied, then the notifier is called and no response is sent: the notified test ends the client.
    CrashAfter(Arc<Notify>),
}

/// One read, before it is done.
#[derive(Debug)]
pub struct ReadAttempt<'a> {
    /// The user.
    pub who: &'a Identity,
    /// The request.
    pub verb: Verb,
    /// Of which resource.
    pub resource: &'a ResourceId,
    /// Namespace, empty for cluster-scoped objects and for all namespaces.
    pub namespace: &'a str,
    /// Name, also when a list or watch insists on it by its field selector; else empty.
    pub name: &'a str,
    /// `status`, `scale` …
    pub subresource: Option<&'a str>,
}

/// What happens to a read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadFault {
    /// Nothing: it goes through.
    None,
    /// It is refused with this status code.
    Reject(u16),
    /// A list shows the objects as they were this many versions ago (or as far back as the log goes).
    StaleList {
        /// How many resourceVersions ago.
        older_by: u64,
    },
}

type WritePlan = Arc<dyn Fn(&WriteAttempt<'_>) -> Fault + Send + Sync>;
type ReadPlan = Arc<dyn Fn(&ReadAttempt<'_>) -> ReadFault + Send + Sync>;

/// Decides about every request. Runs under no lock, so that it may signal through channels.
#[derive(Clone)]
pub struct FaultPlan {
    writes: WritePlan,
    reads: ReadPlan,
}

impl FaultPlan {
    /// No faults.
    pub fn none() -> Self {
        Self {
            writes: Arc::new(|_| Fault::None),
            reads: Arc::new(|_| ReadFault::None),
        }
    }

    /// Faults of writes.
    pub fn writes(plan: impl Fn(&WriteAttempt<'_>) -> Fault + Send + Sync + 'static) -> Self {
        Self {
            writes: Arc::new(plan),
            ..Self::none()
        }
    }

    /// The same plan, with faults of reads.
    #[must_use]
    pub fn with_reads(self, plan: impl Fn(&ReadAttempt<'_>) -> ReadFault + Send + Sync + 'static) -> Self {
        Self {
            reads: Arc::new(plan),
            ..self
        }
    }

    /// One fault at the `number`-th write (from 1) of `user`.
    pub fn at_write_of(user: &str, number: u64, fault: Fault) -> Self {
        let user = user.to_owned();
        Self::writes(move |write| {
            if write.who.user == user && write.of_user == number {
                fault.clone()
            } else {
                Fault::None
            }
        })
    }

    pub(crate) fn for_write(&self, attempt: &WriteAttempt<'_>) -> Fault {
        (self.writes)(attempt)
    }

    pub(crate) fn for_read(&self, attempt: &ReadAttempt<'_>) -> ReadFault {
        (self.reads)(attempt)
    }
}

impl Default for FaultPlan {
    fn default() -> Self {
        Self::none()
    }
}

impl std::fmt::Debug for FaultPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FaultPlan").finish_non_exhaustive()
    }
}
