//! Flags of the existing manager, a Go program, that installations pass in `manager.args`. What has a meaning here is
//! obeyed; the rest is accepted, and a warning says that it does nothing.

use super::job_command::go_bool;

/// Flags of the existing manager that ours does not have by these names.
#[derive(Debug, Default, clap::Args)]
pub(super) struct GoFlags {
    /// As --log-format, by the name that the existing manager knows
    #[arg(long, hide = true)]
    zap_encoder: Option<String>,
    /// How much is logged: info, debug, or a number that grows with it
    #[arg(long, hide = true)]
    zap_log_level: Option<String>,
    /// Ignored
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    zap_devel: Option<bool>,
    /// Ignored
    #[arg(long, hide = true)]
    zap_stacktrace_level: Option<String>,
    /// Ignored
    #[arg(long, hide = true)]
    zap_time_encoding: Option<String>,
    /// Ignored
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true", value_parser = go_bool)]
    enable_http2: Option<bool>,
}

impl GoFlags {
    /// The format of the log: that of the existing manager's flag, if it is given.
    pub(super) fn log_format<'a>(&'a self, ours: &'a str) -> &'a str {
        self.zap_encoder.as_deref().unwrap_or(ours)
    }

    /// How much is logged: 0 what is done, 1 more, 2 everything. Levels above info, which say less, are as info.
    pub(super) fn log_level(&self) -> i64 {
        match self.zap_log_level.as_deref() {
            Some("debug") => 1,
            Some(level) => level.parse().unwrap_or_default(),
            None => 0,
        }
    }

    /// What to say about flags that do nothing.
    pub(super) fn warnings(&self) -> Vec<String> {
        let given = [
            (
                self.zap_devel.is_some(),
                "--zap-devel",
                "use --log-format console and RUST_LOG",
            ),
            (
                self.zap_stacktrace_level.is_some(),
                "--zap-stacktrace-level",
                "errors name what they were about",
            ),
            (
                self.zap_time_encoding.is_some(),
                "--zap-time-encoding",
                "times are in RFC 3339",
            ),
            (
                self.enable_http2.is_some(),
                "--enable-http2",
                "webhooks and metrics serve HTTP/1.1",
            ),
        ];
        let given = given.into_iter().filter(|(is_given, ..)| *is_given);
        given
            .map(|(_, flag, why)| format!("flag {flag} of the Go manager does nothing here: {why}"))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Call {
        #[command(flatten)]
        go: GoFlags,
    }

    fn call(arguments: &[&str]) -> GoFlags {
        Call::try_parse_from([&["manager"], arguments].concat()).unwrap().go
    }

    #[test]
    fn r30_what_has_a_meaning_is_obeyed_and_the_rest_is_warned_of() {
        let none = call(&[]);
        assert_eq!((none.log_format("json"), none.log_level()), ("json", 0));
        assert_eq!(none.warnings(), [""; 0]);
        let some = call(&[
            "--zap-encoder=console",
            "--zap-log-level",
            "debug",
            "--zap-devel",
            "--enable-http2=false",
        ]);
        assert_eq!((some.log_format("json"), some.log_level()), ("console", 1));
        assert_eq!(
            some.warnings(),
            [
                "flag --zap-devel of the Go manager does nothing here: use --log-format console and RUST_LOG",
                "flag --enable-http2 of the Go manager does nothing here: webhooks and metrics serve HTTP/1.1",
            ]
        );
        for (level, expected) in [("2", 2), ("info", 0), ("error", 0)] {
            assert_eq!(call(&["--zap-log-level", level]).log_level(), expected, "{level}");
        }
    }
}
