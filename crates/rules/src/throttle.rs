//! When a change of what is waited for is written: not at once, and not too often.
//!
//! The programs in Jobs write it to their pods, and the manager writes it to the plan, each with its own times.

use std::time::Duration;

use jiff::Timestamp;

/// A time on some clock.
pub trait Instant: Copy + Ord {
    /// So much later; the latest time there is, if there is none so late.
    #[must_use]
    fn after(self, pause: Duration) -> Self;
}

impl Instant for Duration {
    fn after(self, pause: Duration) -> Self {
        self.saturating_add(pause)
    }
}

impl Instant for Timestamp {
    fn after(self, pause: Duration) -> Self {
        self.saturating_add(pause).unwrap_or(Self::MAX)
    }
}

/// How long a change waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Throttle {
    /// After it is known: what is over sooner is not written, and what follows at once is written with it.
    pub debounce: Duration,
    /// After the last write.
    pub interval: Duration,
}

impl Throttle {
    /// When to write a change that is known since `changed`, where the last write was at `written`. What is not given does not
    /// count; nothing, when neither is.
    #[must_use]
    pub fn due<T: Instant>(self, changed: Option<T>, written: Option<T>) -> Option<T> {
        let debounced = changed.map(|at| at.after(self.debounce));
        let spaced = written.map(|at| at.after(self.interval));
        debounced.max(spaced)
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case::neither(None, None, None)]
    #[case::never_written(Some(10), None, Some(11))]
    #[case::written_just_now(Some(10), Some(9), Some(14))]
    #[case::written_long_ago(Some(10), Some(1), Some(11))]
    #[case::only_spaced(None, Some(9), Some(14))]
    fn a_change_waits_for_its_debounce_and_for_the_interval(
        #[case] changed: Option<u64>,
        #[case] written: Option<u64>,
        #[case] expected: Option<u64>,
    ) {
        let throttle = Throttle {
            debounce: Duration::from_secs(1),
            interval: Duration::from_secs(5),
        };
        let at = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        assert_eq!(throttle.due(at(changed), at(written)), at(expected));
        let at =
            |seconds: Option<u64>| seconds.map(|seconds| Timestamp::UNIX_EPOCH.after(Duration::from_secs(seconds)));
        assert_eq!(throttle.due(at(changed), at(written)), at(expected));
    }

    #[test]
    fn there_is_a_latest_time() {
        assert_eq!(Timestamp::MAX.after(Duration::from_secs(1)), Timestamp::MAX);
        assert_eq!(Duration::MAX.after(Duration::from_secs(1)), Duration::MAX);
    }
}
