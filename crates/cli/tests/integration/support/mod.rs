//! A served rehearsal as a child process, and the real kubectl on it.

use std::{
    ffi::OsString,
    io::{BufRead, BufReader, Read, Write},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    time::Duration,
};

/// How long anything may take before a test gives up. Only a test that fails waits this long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The kubectl to use.
fn kubectl() -> OsString {
    std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into())
}

/// The lines that a process prints, read as they come.
pub(crate) struct Lines(Receiver<String>);

impl Lines {
    fn of(stream: impl Read + Send + 'static) -> Self {
        let (send, receive) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stream).lines().map_while(Result::ok) {
                if send.send(line).is_err() {
                    return;
                }
            }
        });
        Self(receive)
    }

    /// The first line from now on for which `look` has an answer.
    pub(crate) fn find<T>(&self, what: &str, mut look: impl FnMut(&str) -> Option<T>) -> T {
        let mut seen = Vec::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(line) => match look(&line) {
                    Some(found) => return found,
                    None => seen.push(line),
                },
                Err(error) => panic!("{what}: {error}; seen so far:\n{}", seen.join("\n")),
            }
        }
    }

    /// Reads on until the process has closed its stream.
    fn drain(&self) {
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => panic!("the process does not end"),
            }
        }
    }
}

/// The first answer. Each look takes its time: it runs a process.
pub(crate) fn eventually<T>(what: &str, look: impl FnMut() -> Option<T>) -> T {
    let mut looks = std::iter::repeat_with(look).take(1000);
    looks
        .find_map(|found| found)
        .unwrap_or_else(|| panic!("{what}: not in time"))
}

/// A process that ends with the test.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A served rehearsal.
pub(crate) struct Served {
    process: Process,
    /// What it prints.
    pub(crate) lines: Lines,
    /// Where its kubeconfig is.
    pub(crate) kubeconfig: String,
    /// kubectl keeps what it has learned of a server in its home, and ports are used again.
    home: tempfile::TempDir,
}

impl Served {
    /// Starts one on a free port.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let version = Command::new(kubectl()).args(["version", "--client"]).output();
        assert!(
            version.is_ok_and(|output| output.status.success()),
            "there is no kubectl: run hack/prepare"
        );
        let home = tempfile::tempdir().unwrap();
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
            .args(["rehearse", "--serve", "127.0.0.1:0"])
            .args(arguments)
            // A process that is killed cannot tidy up.
            .env("TMPDIR", home.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let process = Process(child);
        let kubeconfig = lines.find("the rehearsal says how to reach it", |line| {
            line.split("export KUBECONFIG=").nth(1).map(str::to_owned)
        });
        Self {
            process,
            lines,
            kubeconfig,
            home,
        }
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(kubectl());
        command
            .args(arguments)
            .env("KUBECONFIG", &self.kubeconfig)
            .env("HOME", self.home.path())
            .env_remove("KUBERNETES_MASTER");
        command
    }

    /// Runs kubectl with something on its standard input; returns whether it succeeded, and what it printed.
    pub(crate) fn kubectl_with(&self, arguments: &[&str], input: &str) -> (bool, String) {
        let mut child = self
            .command(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8(text).unwrap())
    }

    /// Runs kubectl, which must succeed, and returns what it printed.
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let (succeeded, text) = self.kubectl_with(arguments, "");
        assert!(succeeded, "kubectl {arguments:?}: {text}");
        text
    }

    /// Runs kubectl in the background, calls `look` with its lines, and ends it.
    pub(crate) fn kubectl_lines<T>(&self, arguments: &[&str], look: impl FnOnce(&Lines) -> T) -> T {
        let mut child = self.command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let _process = Process(child);
        look(&lines)
    }

    fn toolkit_command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_upgrade-toolkit"));
        command.args(arguments).env("KUBECONFIG", &self.kubeconfig);
        command
    }

    /// Runs a command of ours, which must succeed, and returns what it printed.
    pub(crate) fn toolkit(&self, arguments: &[&str]) -> String {
        let output = self.toolkit_command(arguments).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{arguments:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command of ours, which must fail, and returns what it printed as its error.
    pub(crate) fn toolkit_fails(&self, arguments: &[&str]) -> String {
        let output = self.toolkit_command(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    }

    /// Runs a command of ours in the background, calls `look` with its lines, and ends it.
    pub(crate) fn toolkit_lines<T>(&self, arguments: &[&str], look: impl FnOnce(&Lines) -> T) -> T {
        let mut child = self.toolkit_command(arguments).stdout(Stdio::piped()).spawn().unwrap();
        let lines = Lines::of(child.stdout.take().unwrap());
        let _process = Process(child);
        look(&lines)
    }

    /// Waits until a plan has ended, with the kind of wait that every kubectl knows.
    pub(crate) fn wait_until_ended(&self, plan: &str) {
        self.kubectl(&[
            "wait",
            "--for=condition=Progressing=False",
            "--timeout=120s",
            &format!("upgradeplan/{plan}"),
        ]);
    }

    /// The minor version of kubectl.
    pub(crate) fn kubectl_minor(&self) -> u32 {
        let text = self.kubectl(&["version", "--client", "-o", "json"]);
        let version: serde_json::Value = serde_json::from_str(&text).unwrap();
        let minor = version["clientVersion"]["minor"].as_str().unwrap();
        minor.trim_end_matches('+').parse().unwrap()
    }

    /// Sends Ctrl-C and waits for the end.
    pub(crate) fn interrupt(mut self) -> ExitStatus {
        let id = self.process.0.id();
        let sent = Command::new("sh")
            .args(["-c", &format!("kill -INT {id}")])
            .status()
            .unwrap();
        assert!(sent.success());
        self.lines.drain();
        self.process.0.wait().unwrap()
    }
}
