//! Commands for administrators, called as users call them: the binary, on clusters that are served over HTTP.

mod cluster;
mod completions;
mod connection;
mod formats;
mod lifecycle;
mod plan_end;
mod rights;
mod saved;
mod steering;
mod terminal;
mod usability;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

/// The binary, with the environment of a user who has set nothing.
fn toolkit() -> Command {
    let mut command = Command::new(binary());
    for variable in ["KUBECONFIG", "NO_COLOR", "KUBERNETES_SERVICE_HOST", "CLICOLOR_FORCE"] {
        command.env_remove(variable);
    }
    command.stdin(Stdio::null());
    command
}

fn binary() -> PathBuf {
    assert_cmd::cargo::cargo_bin("upgrade-toolkit")
}

/// What a command printed, and how it ended.
#[derive(Debug)]
struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// It ended so.
    #[track_caller]
    fn ended(self, code: i32) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        self
    }

    /// It printed this.
    #[track_caller]
    fn says(self, text: &str) -> Self {
        assert!(
            self.out.contains(text),
            "{text:?} is missing in:\n{}\n{}",
            self.out,
            self.err
        );
        self
    }

    /// It was called wrongly, with this message.
    #[track_caller]
    fn says_usage(self, text: &str) -> Self {
        let ran = self.ended(2);
        assert!(ran.err.contains(text) && ran.err.contains("Usage: "), "{}", ran.err);
        ran
    }

    /// It failed with this message, for people: a sentence, and no value of a program.
    #[track_caller]
    fn complains(self, text: &str) -> Self {
        assert!(self.err.contains(text), "{text:?} is missing in:\n{}", self.err);
        for dump in [
            "Os {",
            "kind:",
            "Some(",
            "Error {",
            "ErrorResponse",
            "Err(",
            "Status {",
            "\\\"",
            "panicked",
        ] {
            assert!(!self.err.contains(dump), "{dump:?} is in:\n{}", self.err);
        }
        assert!(self.err.lines().count() <= 3, "{}", self.err);
        self
    }
}

/// A folder of this test, which is empty.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("insight-{name}"));
    // It may be there from the last run.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
