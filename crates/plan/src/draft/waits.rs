//! What a decision waits for: since when, until when, and when a wait is overdue.

use std::time::Duration;

use api::{Component, JobType, Wait, WaitingFor, quoted::quoted, reasons};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Draft;
use crate::{decision::Need, observed::Fetched};
use rules::{deadlines::UNBOUNDED, waiting};

/// How long to pause before a failed probe is repeated.
const ASK_AGAIN: Duration = Duration::from_secs(10);

/// How long a drain takes without blockers; after that the blockers are queried, and again after the same time.
const QUICK_DRAIN: Duration = Duration::from_mins(2);

/// How many pods that cannot start, and how many waits of programs are shown; the others are counted.
const MAX_SHOWN: usize = 10;

/// Something that a person should look at.
pub(super) struct Trouble {
    pub(super) reason: &'static str,
    pub(super) message: String,
    /// A warning was reported.
    pub(super) known: bool,
}

/// A wait that takes too long, as the condition shows it.
fn stalled(wait: &WaitingFor) -> String {
    let message = wait.message.as_deref().unwrap_or(&wait.what);
    format!("{message} (stalled: waiting since {})", wait.since.0)
}

/// What a message says after the wait that is past its deadline, if a known situation explains it.
pub(super) const EXPLAINED_BY: &str = "; explained by ";

/// The message reports that wait, with or without an explanation.
fn says_stalled(message: &str, wait: &str) -> bool {
    message
        .strip_prefix(wait)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(EXPLAINED_BY))
}

/// A recorded wait: shown to users, with its beginning and its deadline. Only a draft makes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Noted {
    wait: Wait,
    expired: bool,
}

impl Noted {
    /// It takes longer than it may.
    #[must_use]
    pub const fn is_overdue(self) -> bool {
        self.expired
    }
}

/// What a rule waits for: at least one named wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits(Vec<Wait>);

impl From<Noted> for Waits {
    fn from(noted: Noted) -> Self {
        Self(vec![noted.wait])
    }
}

impl Waits {
    /// The names.
    #[must_use]
    pub fn names(&self) -> &[Wait] {
        &self.0
    }

    /// What was waited for before, and more.
    #[must_use]
    pub fn joined(before: Option<Self>, more: impl Into<Self>) -> Self {
        let mut all = before.map(|before| before.0).unwrap_or_default();
        all.extend(more.into().0);
        Self(all)
    }
}

impl<'a> Draft<'a> {
    /// Notes what is waited for, since when, and until when, by the table of deadlines.
    pub fn wait(&mut self, what: Wait, object: Option<String>, message: impl Into<String>) -> Noted {
        let limit = self.observed.settings.deadlines.of(what);
        self.wait_within(what, object, message, limit)
    }

    /// The same with another limit than the table has.
    pub fn wait_within(
        &mut self,
        what: Wait,
        object: Option<String>,
        message: impl Into<String>,
        limit: Duration,
    ) -> Noted {
        self.wait_since(what, object, message, limit, None)
    }

    /// The same for a wait that made progress at a time: its limit counts from then.
    pub fn wait_while_it_progresses(
        &mut self,
        what: Wait,
        object: Option<String>,
        message: impl Into<String>,
        progressed: Option<Timestamp>,
    ) -> Noted {
        let limit = self.observed.settings.deadlines.of(what);
        self.wait_since(what, object, message, limit, progressed)
    }

    fn wait_since(
        &mut self,
        what: Wait,
        object: Option<String>,
        message: impl Into<String>,
        limit: Duration,
        progressed: Option<Timestamp>,
    ) -> Noted {
        let since = self.waits_since(what, object.as_deref());
        let counted = progressed.map_or(since, |at| at.max(since));
        let deadline = counted.saturating_add(limit).unwrap_or(Timestamp::MAX);
        let message = message.into();
        let expired = deadline <= self.now;
        let wait = WaitingFor {
            what: what.to_string(),
            object,
            message: Some(message),
            since: Time(since),
            // What has no limit has no deadline to show.
            deadline: (limit < UNBOUNDED).then_some(Time(deadline)),
        };
        if expired {
            self.stall(&wait);
        }
        self.waits.push(wait);
        self.noted.push(what);
        Noted { wait: what, expired }
    }

    /// The same of something that is not waited for any longer than that: then it is still shown, and holds nothing up.
    /// Returns whether that is so.
    pub fn wait_at_most(&mut self, what: Wait, object: Option<String>, message: impl Into<String>) -> bool {
        let noted = self.wait(what, object, message);
        if noted.is_overdue() {
            // The one that was just noted.
            self.noted.pop();
        }
        noted.is_overdue()
    }

    /// Since when something is waited for: from now on, if it is not yet.
    fn waits_since(&self, what: Wait, object: Option<&str>) -> Timestamp {
        let known = self.observed.plan.status.iter().flat_map(|status| &status.waiting_for);
        waiting::since(known, what.as_str(), object, self.now)
    }

    /// Whether something has been waited for as long as it may take.
    #[must_use]
    pub fn is_overdue(&self, what: Wait, object: &str) -> bool {
        self.is_overdue_after(what, object, self.observed.settings.deadlines.of(what))
    }

    /// The same with another limit than the table has.
    #[must_use]
    pub fn is_overdue_after(&self, what: Wait, object: &str, limit: Duration) -> bool {
        let since = self.waits_since(what, Some(object));
        since.saturating_add(limit).is_ok_and(|deadline| deadline <= self.now)
    }

    /// Notes pods of a component that cannot start, and why; and what the programs of the others say that they wait
    /// for, as far as that fits into a readable status.
    pub fn wait_for_pods(&mut self, component: Component, job_type: Option<JobType>, node: Option<&str>) {
        let observed = self.observed;
        let pods = observed.pods.values().filter(|pod| {
            let same_step = job_type.is_none_or(|step| pod.job_type == Some(step));
            let same_node = node.is_none_or(|node| pod.node.as_deref() == Some(node));
            pod.component == component && same_step && same_node
        });
        let (mut said, mut stuck, mut more) = (Vec::new(), 0, 0);
        for pod in pods {
            stuck += usize::from(pod.problem.is_some());
            if pod.problem.is_some() && stuck > MAX_SHOWN {
                more += 1;
            } else if let (Some(problem), Some(image), Some(node)) = (&pod.problem, &pod.missing_image, &pod.node) {
                let message = format!(
                    "node {node} does not have the image {image} and cannot pull it: import it there, or make sure that the node can \
                     reach its registry (pod {}: {problem})",
                    pod.name
                );
                self.wait(Wait::ToolkitImage, Some(format!("Node {node}")), message);
            } else if let Some(problem) = &pod.problem {
                let message = format!("pod {} cannot start: {problem}", pod.name);
                self.wait(Wait::Pod, Some(format!("Pod {}", pod.name)), message);
            } else {
                said.extend(pod.said.iter().map(|entry| (pod.node.as_deref(), entry)));
            }
        }
        for (of_node, entry) in said.iter().take(MAX_SHOWN) {
            // Where several nodes are at work, users must see which one reports.
            let prefix = of_node.filter(|_| node.is_none());
            self.repeat(prefix, entry);
        }
        more += said.len().saturating_sub(MAX_SHOWN);
        if more > 0 {
            let object = Some(format!("{component} pods"));
            self.wait(Wait::More, object, format!("waiting for {more} more objects"));
        }
    }

    /// Notes what a program says that it waits for, with its own beginning and end. Past that end the program gives up
    /// by itself; if it has not, a person should look.
    fn repeat(&mut self, node: Option<&str>, entry: &WaitingFor) {
        // A pod controls its text, so quotation marks show that it is not the manager's.
        let message = quoted(entry.message.as_deref().unwrap_or(&entry.what));
        let message = match node {
            Some(node) => format!("node {node}: {message}"),
            None => message,
        };
        let wait = WaitingFor {
            message: Some(message),
            // A clock that is ahead, or a lie, must keep nothing from stalling.
            since: Time(entry.since.0.min(self.now)),
            ..entry.clone()
        };
        if wait.deadline.as_ref().is_some_and(|deadline| deadline.0 <= self.now) {
            self.stall(&wait);
        }
        self.waits.push(wait);
    }

    /// Records that a wait takes longer than it should. The first one is reported. If it is already reported that this
    /// wait stalls, there is no second warning when only its message changes.
    fn stall(&mut self, wait: &WaitingFor) {
        if self.degraded.is_some() {
            return;
        }
        let reported = self.observed.plan.condition(reasons::DEGRADED);
        let reported = reported.filter(|condition| condition.reason == reasons::STALLED);
        let before = self.observed.plan.status.iter().flat_map(|status| &status.waiting_for);
        let known = before
            .filter(|known| waiting::is_same(known, &wait.what, wait.object.as_deref()))
            .any(|known| reported.is_some_and(|condition| says_stalled(&condition.message, &stalled(known))));
        self.degraded = Some(Trouble {
            reason: reasons::STALLED,
            message: stalled(wait),
            known,
        });
    }

    /// Everything that is waited for so far, if anything is.
    #[must_use]
    pub fn waiting_for(&self) -> Option<Waits> {
        (!self.noted.is_empty()).then(|| Waits(self.noted.clone()))
    }

    /// Notes something that a person should look at.
    pub fn degrade(&mut self, message: impl Into<String>) {
        self.degraded = Some(Trouble {
            reason: reasons::RECONCILE_ERROR,
            message: message.into(),
            known: false,
        });
    }

    /// The result of a probe, if it is known; otherwise it is requested, or requested again after a pause, and the wait is recorded:
    /// `waiting` is its name, its object and its message.
    ///
    /// # Errors
    /// It is not there.
    pub fn ask<T>(
        &mut self,
        need: Need,
        fetched: &'a Fetched<T>,
        waiting: (Wait, String, &str),
    ) -> Result<&'a T, Noted> {
        let (what, object, message) = waiting;
        match fetched {
            Fetched::Got(answer) => Ok(answer),
            Fetched::Unknown => {
                self.needs.push(need);
                Err(self.wait(what, Some(object), message))
            }
            Fetched::Failed { error, at, .. } => {
                let again = at.saturating_add(ASK_AGAIN).unwrap_or(Timestamp::MAX);
                self.ask_at(need, again);
                Err(self.wait(what, Some(object), error.clone()))
            }
        }
    }

    /// Requests a probe at a time that may have come.
    fn ask_at(&mut self, need: Need, moment: Timestamp) {
        if moment <= self.now {
            self.needs.push(need);
        } else {
            let earlier = self.ask_again_at.filter(|other| *other < moment);
            self.ask_again_at = Some(earlier.unwrap_or(moment));
        }
    }

    /// What blocks pods of a node that Rancher drains, once that takes longer than it should: it is queried then, and
    /// now and again as long as it lasts.
    pub fn kept_pods(&mut self, node: &str, (what, object): (Wait, &str)) -> &'a [String] {
        let since = self.waits_since(what, Some(object));
        let (asked, found) = match &self.observed.facts.kept_pods {
            Fetched::Unknown => (since, None),
            Fetched::Failed { at, .. } => (*at, None),
            Fetched::Got(found) => (found.at.max(since), found.by_node.get(node)),
        };
        let again = asked.saturating_add(QUICK_DRAIN).unwrap_or(Timestamp::MAX);
        self.ask_at(Need::KeptPods, again);
        found.map(Vec::as_slice).unwrap_or_default()
    }
}
