//! Time as a value.
//!
//! The only place where wall clocks may be read. Everything else is given a [`Clock`], so that the same code runs in
//! real time, in paused time (a whole upgrade in a second) and in scaled time (to watch one happen).

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

/// Reads the time and waits.
#[derive(Clone, Debug)]
pub struct Clock {
    kind: Kind,
    start: Instant,
}

#[derive(Clone, Debug)]
enum Kind {
    System,
    Simulated { base: Timestamp, speed: f64 },
}

impl Clock {
    /// The time of this machine.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this module is where time comes from")]
    pub fn system() -> Self {
        Self {
            kind: Kind::System,
            start: Instant::now(),
        }
    }

    /// Starts at `base` and runs `speed` times as fast as tokio's time. Under paused tokio time, with speed 1, time
    /// passes only while all tasks wait.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "tokio's clock, which can be paused")]
    pub fn simulated(base: Timestamp, speed: f64) -> Self {
        Self {
            kind: Kind::Simulated {
                base,
                speed: speed.max(f64::MIN_POSITIVE),
            },
            start: Instant::now(),
        }
    }

    /// What time it is.
    #[must_use]
    #[allow(clippy::disallowed_methods, reason = "this module is where time comes from")]
    pub fn now(&self) -> Timestamp {
        match &self.kind {
            Kind::System => Timestamp::now(),
            Kind::Simulated { base, .. } => base.saturating_add(self.elapsed()).unwrap_or(*base),
        }
    }

    /// What time it is, in whole seconds: the grain of Kubernetes timestamps.
    #[must_use]
    pub fn now_in_seconds(&self) -> Timestamp {
        let now = self.now();
        Timestamp::from_second(now.as_second()).unwrap_or(now)
    }

    /// How long this clock has been running. Never goes back, whatever happens to the machine's time.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        let elapsed = self.start.elapsed();
        match self.kind {
            Kind::System => elapsed,
            Kind::Simulated { speed, .. } => elapsed.mul_f64(speed),
        }
    }

    /// Waits.
    pub async fn sleep(&self, duration: Duration) {
        let duration = match self.kind {
            Kind::System => duration,
            Kind::Simulated { speed, .. } => duration.div_f64(speed),
        };
        tokio::time::sleep(duration).await;
    }

    /// Waits until a moment, or not at all when it has passed.
    pub async fn sleep_until(&self, moment: Timestamp) {
        let left = moment.duration_since(self.now());
        if let Ok(left) = Duration::try_from(left) {
            self.sleep(left).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn paused_time_passes_only_while_all_tasks_wait() {
        let base: Timestamp = "2026-03-13T03:57:09Z".parse().unwrap();
        let clock = Clock::simulated(base, 1.0);
        assert_eq!(clock.now(), base);
        clock.sleep(Duration::from_secs(3600)).await;
        assert_eq!(clock.now_in_seconds(), "2026-03-13T04:57:09Z".parse().unwrap());
        clock.sleep_until(base).await;
        assert_eq!(clock.elapsed().as_secs(), 3600);
    }

    #[tokio::test(start_paused = true)]
    async fn scaled_time_runs_faster_than_tokio_time() {
        let base: Timestamp = "2026-03-13T03:57:09Z".parse().unwrap();
        let clock = Clock::simulated(base, 60.0);
        let before = Instant::now();
        clock.sleep(Duration::from_secs(600)).await;
        assert_eq!(before.elapsed().as_secs(), 10);
        assert_eq!(clock.elapsed().as_secs(), 600);
    }
}
