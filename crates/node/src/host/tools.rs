//! Programs of the node and of the container, behind one trait, so that tests see what would be called.

use std::{path::PathBuf, process::Stdio};

use futures::future::BoxFuture;
use tokio::process::Command;

use program::error::{Error, Result};

use super::{mounts, own_root};

/// Where a program of the node is looked for.
const HOST_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Whose program it is, and whose files it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The node's: it runs with the node's root as its own, in the mount namespace of the container.
    Host,
    /// The container's.
    Container,
}

/// A program to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Whose it is.
    pub place: Place,
    /// Its name or path.
    pub program: String,
    /// Its arguments; no shell reads them.
    pub args: Vec<String>,
}

impl Call {
    /// A program of the node.
    #[must_use]
    pub fn host(program: &str, args: &[&str]) -> Self {
        Self::of(Place::Host, program, args)
    }

    /// A program of the container.
    #[must_use]
    pub fn container(program: &str, args: &[&str]) -> Self {
        Self::of(Place::Container, program, args)
    }

    fn of(place: Place, program: &str, args: &[&str]) -> Self {
        Self {
            place,
            program: program.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        }
    }
}

impl std::fmt::Display for Call {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.program)?;
        self.args.iter().try_for_each(|arg| write!(f, " {arg}"))
    }
}

/// How a program ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ended {
    /// Its exit code; -1 when a signal ended it.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

impl Ended {
    /// It ended well and printed this.
    #[must_use]
    pub fn well(stdout: &str) -> Self {
        Self {
            stdout: stdout.to_owned(),
            ..Self::default()
        }
    }

    /// It ended with this code.
    #[must_use]
    pub fn with_code(code: i32) -> Self {
        Self {
            code,
            ..Self::default()
        }
    }
}

/// Runs programs.
pub trait HostTools: Send + Sync {
    /// Runs a program to its end. A program that is no longer waited for is killed.
    ///
    /// # Errors
    /// When it could not be started. A bad exit code is no error here.
    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Ended>>;

    /// What is mounted, in the form of `/proc/self/mountinfo`.
    ///
    /// # Errors
    /// When that cannot be read.
    fn mountinfo(&self) -> Result<String>;
}

/// Runs a program that must end well, and returns what it printed. Tools of a node that is being upgraded fail now and
/// then, since what they talk to restarts; so the step tries again until its deadline.
///
/// # Errors
/// When it did not end well.
pub async fn must(tools: &dyn HostTools, call: Call) -> Result<String> {
    let ended = tools.run(&call).await?;
    if ended.code == 0 {
        return Ok(ended.stdout);
    }
    let said = if ended.stderr.trim().is_empty() {
        &ended.stdout
    } else {
        &ended.stderr
    };
    Err(Error::Transient(format!(
        "{call} ended with code {}: {}",
        ended.code,
        said.trim()
    )))
}

/// The real implementation: programs of the node run through `chroot`.
#[derive(Clone, Debug)]
pub struct Chroot {
    root: PathBuf,
}

impl Chroot {
    /// The node's root is mounted at `root`.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }
}

impl HostTools for Chroot {
    fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Ended>> {
        Box::pin(async move {
            own_root::refuse_program(&self.root, &call.program)?;
            let mut command = match call.place {
                Place::Host => {
                    let mut command = Command::new("chroot");
                    command.arg(&self.root).arg(&call.program).env("PATH", HOST_PATH);
                    command
                }
                Place::Container => Command::new(&call.program),
            };
            command.args(&call.args).stdin(Stdio::null()).kill_on_drop(true);
            tracing::info!(place = ?call.place, "running {call}");
            let output = command
                .output()
                .await
                .map_err(|error| Error::file("run", &call.program, error))?;
            let ended = Ended {
                code: output.status.code().unwrap_or(-1),
                stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
                stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            };
            tracing::info!(code = ended.code, "{} ended", call.program);
            Ok(ended)
        })
    }

    fn mountinfo(&self) -> Result<String> {
        mounts::read()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_program_is_run_without_a_shell_and_its_end_is_reported() {
        let directory = tempfile::tempdir().unwrap();
        let tools = Chroot::new(directory.path());
        let ended = tools
            .run(&Call::container("printf", &["%s", "a b; $(c)"]))
            .await
            .unwrap();
        assert_eq!(ended, Ended::well("a b; $(c)"));
        let ended = tools.run(&Call::container("ls", &["/no/such/file"])).await.unwrap();
        assert!(ended.code != 0 && ended.stderr.contains("/no/such/file"), "{ended:?}");
        let error = tools.run(&Call::container("/no/such/program", &[])).await.unwrap_err();
        assert!(
            error.to_string().starts_with("failed to run /no/such/program"),
            "{error}"
        );
    }

    #[tokio::test]
    async fn a_program_of_the_host_runs_in_its_root() {
        let directory = tempfile::tempdir().unwrap();
        // An empty root has no programs, whatever the container has. Without the right to change the root, neither.
        let ended = Chroot::new(directory.path())
            .run(&Call::host("true", &[]))
            .await
            .unwrap();
        assert_ne!(ended.code, 0);
        let error = must(&Chroot::new(directory.path()), Call::host("true", &["x"]))
            .await
            .unwrap_err();
        assert!(
            error.is_transient() && error.to_string().starts_with("true x ended with code "),
            "{error}"
        );
        let ended = Chroot::new("/").run(&Call::host("nproc", &[])).await.unwrap();
        let number: Result<u32, _> = ended.stdout.trim().parse();
        assert!(number.is_ok() || ended.stderr.contains("chroot"), "{ended:?}");
    }
}
