//! Colours, where the caller wants them, and how long something has lasted.

use checks::finding::Severity;
use jiff::Timestamp;

/// How text is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// With colours: only for terminals, and not where `NO_COLOR` is set.
    pub colours: bool,
}

impl Style {
    /// A severity, in its colour.
    #[must_use]
    pub fn severity(self, severity: Severity) -> String {
        let code = match severity {
            Severity::Error => "31;1",
            Severity::Warning => "33;1",
            Severity::Info => "36",
        };
        self.coloured(code, &severity.to_string())
    }

    /// A text that stands out.
    #[must_use]
    pub fn bold(self, text: &str) -> String {
        self.coloured("1", text)
    }

    /// A text that steps back.
    #[must_use]
    pub fn dim(self, text: &str) -> String {
        self.coloured("2", text)
    }

    fn coloured(self, code: &str, text: &str) -> String {
        if self.colours {
            format!("\u{1b}[{code}m{text}\u{1b}[0m")
        } else {
            text.to_owned()
        }
    }
}

/// How long ago, in at most two units: `3d4h`, `2h5m`, `7m`, `12s`. What is in the future is `0s`.
#[must_use]
pub fn ago(since: Timestamp, now: Timestamp) -> String {
    let seconds = now.duration_since(since).as_secs().max(0);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, 0) => format!("{hours}h"),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, 0, _) => format!("{days}d"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_is_shown_in_at_most_two_units() {
        let now: Timestamp = "2026-03-13T12:00:00Z".parse().unwrap_or_default();
        for (seconds, shown) in [
            (12, "12s"),
            (60, "1m"),
            (3_600, "1h"),
            (3_900, "1h5m"),
            (86_400, "1d"),
            (100_800, "1d4h"),
        ] {
            let since = Timestamp::from_second(now.as_second() - seconds).unwrap_or_default();
            assert_eq!(ago(since, now), shown);
        }
        assert_eq!(ago(now, Timestamp::default()), "0s");
    }

    #[test]
    fn colours_are_only_where_they_are_wanted() {
        assert_eq!(Style::default().severity(Severity::Error), "error");
        assert!(Style { colours: true }.severity(Severity::Error).contains('\u{1b}'));
    }
}
