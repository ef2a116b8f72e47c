//! rancher-system-agent: the cluster upgrade suspends it with a drop-in, so that it does not restart RKE2 while Rancher is
//! replaced; the upgrade of each node resumes it.

use std::{sync::Arc, time::Duration};

use program::{error::Result, step::Step};

use super::{
    HostRoot,
    tools::{Call, HostTools, must},
};

/// The drop-in that suspends it. It is in memory only.
const DROP_IN: &str = "/run/systemd/system/rancher-system-agent.service.d";
const ENVIRONMENT_FILE: &str = "10-harvester-upgrade.env";
const UNIT: &str = "rancher-system-agent";

/// The only step of the program that holds the agent of a node back.
pub const SUSPEND_STEPS: &[Step<AgentNode>] = &[Step {
    name: "suspend-agent",
    limit: Duration::from_mins(8),
    run: |node, _| Box::pin(suspend(&node.root, node.tools.as_ref())),
}];

/// The node whose agent is suspended.
pub struct AgentNode {
    /// Its files.
    pub root: HostRoot,
    /// Its programs.
    pub tools: Arc<dyn HostTools>,
}

/// Puts the drop-in there and restarts the agent. The environment comes first: a drop-in without it says nothing.
///
/// # Errors
/// When it cannot be written, or systemd does not do it.
pub async fn suspend(root: &HostRoot, tools: &dyn HostTools) -> Result<()> {
    let environment = format!("{DROP_IN}/{ENVIRONMENT_FILE}");
    root.write(&environment, b"INSTALL_RKE2_SKIP_ENABLE=true\n", 0o644)?;
    let unit = format!("[Service]\nEnvironmentFile=-{environment}\n");
    root.write(&format!("{DROP_IN}/override.conf"), unit.as_bytes(), 0o644)?;
    restart(tools).await
}

/// Takes the drop-in away and restarts the agent.
///
/// # Errors
/// When systemd does not do it.
pub async fn recover(root: &HostRoot, tools: &dyn HostTools) -> Result<()> {
    root.remove_dir(DROP_IN)?;
    restart(tools).await
}

/// The agent is restarted each time: whether it already runs with what is on the disk is unknown after a crash in
/// between, and a restart only makes it look at its plan again.
async fn restart(tools: &dyn HostTools) -> Result<()> {
    must(tools, Call::host("systemctl", &["daemon-reload"])).await?;
    must(tools, Call::host("systemctl", &["restart", UNIT])).await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::BoxFuture;

    use super::*;
    use crate::host::Ended;
    use program::error::Error;

    /// A systemd whose calls fail at first.
    struct Systemd {
        failures: Mutex<usize>,
        calls: Mutex<Vec<String>>,
    }

    impl Systemd {
        fn failing(times: usize) -> Self {
            Self {
                failures: Mutex::new(times),
                calls: Mutex::default(),
            }
        }
    }

    impl HostTools for Systemd {
        fn run<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Result<Ended>> {
            self.calls.lock().unwrap().push(call.to_string());
            let mut failures = self.failures.lock().unwrap();
            let fails = *failures > 0;
            *failures = failures.saturating_sub(1);
            Box::pin(std::future::ready(Ok(Ended::with_code(i32::from(fails)))))
        }

        fn mountinfo(&self) -> Result<String> {
            Err(Error::Permanent("not asked for".to_owned()))
        }
    }

    const CALLS: [&str; 2] = ["systemctl daemon-reload", "systemctl restart rancher-system-agent"];

    fn host() -> (tempfile::TempDir, HostRoot) {
        let directory = tempfile::tempdir().unwrap();
        let root = HostRoot::new(directory.path().join("host"));
        std::fs::create_dir(root.mounted_at()).unwrap();
        (directory, root)
    }

    #[tokio::test]
    async fn an_agent_is_suspended_by_a_drop_in_and_its_environment_and_resumed_without_a_trace() {
        let (_keep, root) = host();
        suspend(&root, &Systemd::failing(0)).await.unwrap();
        assert_eq!(root.names_in(DROP_IN).unwrap(), [ENVIRONMENT_FILE, "override.conf"]);
        let read = |name: &str| root.read_text(&format!("{DROP_IN}/{name}")).unwrap().unwrap();
        assert_eq!(read(ENVIRONMENT_FILE), "INSTALL_RKE2_SKIP_ENABLE=true\n");
        assert_eq!(
            read("override.conf"),
            "[Service]\nEnvironmentFile=-/run/systemd/system/rancher-system-agent.service.d/10-harvester-upgrade.env\n"
        );
        recover(&root, &Systemd::failing(0)).await.unwrap();
        assert!(!root.exists(DROP_IN).unwrap());
    }

    #[tokio::test]
    async fn an_agent_whose_restart_failed_or_never_came_is_restarted_by_the_next_try() {
        let (_keep, root) = host();
        // Killed, or refused, after the drop-in was written and before systemd had done anything about it.
        for failures in [1, 1] {
            let error = suspend(&root, &Systemd::failing(failures)).await.unwrap_err();
            assert!(error.is_transient(), "{error}");
        }
        let systemd = Systemd::failing(0);
        suspend(&root, &systemd).await.unwrap();
        assert_eq!(*systemd.calls.lock().unwrap(), CALLS);
    }

    #[tokio::test]
    async fn a_link_on_the_node_does_not_lead_the_drop_in_out_of_the_node() {
        let (outside, root) = host();
        let escape = outside.path().join("escape");
        std::fs::create_dir_all(root.mounted_at().join("run")).unwrap();
        std::os::unix::fs::symlink(&escape, root.mounted_at().join("run/systemd")).unwrap();
        suspend(&root, &Systemd::failing(0)).await.unwrap();
        assert!(!escape.exists());
        assert!(root.exists(&format!("{DROP_IN}/override.conf")).unwrap());
    }
}
