//! How the binary was called: names that stand for a command, and flags as Go programs take them.
//!
//! Jobs of other tools call scripts that are gone and flags of a Go program. Their names are links to this binary; the
//! table below says what each stands for.

use std::{ffi::OsString, path::Path};

/// A name under which the binary is called, and the command that it stands for.
const NAMES: &[(&str, &[&str])] = &[
    ("upgrade_node.sh", &["node"]),
    ("upgrade_manifests.sh", &["cluster-upgrade"]),
    // Its commands have kept their names.
    ("upgrade-helper", &[]),
    // `kubectl upgrade-toolkit …`
    (PLUGIN, &[]),
    // What kubectl calls to complete `kubectl upgrade-toolkit …`
    ("kubectl_complete-upgrade_toolkit", &["__complete"]),
];

/// The name of the plugin of kubectl.
const PLUGIN: &str = "kubectl-upgrade_toolkit";

/// Commands that take flags as Go's `flag` does: with one dash or two.
const GO_COMMANDS: &[&str] = &[
    "manager",
    "vm-live-migrate-detector",
    "restore-vm",
    "version-guard",
    "version",
];

/// The arguments as if the binary had been called by its own name, with flags of two dashes.
#[must_use]
pub fn arguments(given: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut given = given.into_iter();
    let called = given.next().unwrap_or_default();
    let name = Path::new(&called).file_name().unwrap_or_default();
    let stands_for = NAMES
        .iter()
        .find(|(known, _)| name == *known)
        .map(|(_, command)| *command);
    let mut all: Vec<OsString> = stands_for.unwrap_or_default().iter().map(Into::into).collect();
    all.extend(given);
    let go = all
        .first()
        .is_some_and(|command| GO_COMMANDS.iter().any(|known| command == known));
    if go {
        let ended = all.iter().position(|one| one == "--").unwrap_or(all.len());
        for argument in &mut all[..ended] {
            if is_long_with_one_dash(argument) {
                let mut longer = OsString::from("-");
                longer.push(&argument);
                *argument = longer;
            }
        }
    }
    // Usage is shown under the name that people can call.
    let shown = if name == PLUGIN {
        "kubectl upgrade-toolkit"
    } else {
        "upgrade-toolkit"
    };
    all.insert(0, shown.into());
    all
}

/// `-flag` and `-flag=value`, but neither `-h` nor `-1` nor `--flag`.
fn is_long_with_one_dash(argument: &OsString) -> bool {
    let bytes = argument.as_encoded_bytes();
    bytes.len() > 2 && bytes[0] == b'-' && bytes[1].is_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("upgrade-toolkit manager --leader-elect", "manager --leader-elect")]
    #[case(
        "upgrade-toolkit manager -leader-elect -zap-log-level=debug",
        "manager --leader-elect --zap-log-level=debug"
    )]
    #[case("/usr/local/bin/upgrade_node.sh pre-drain", "node pre-drain")]
    #[case("upgrade_node.sh", "node")]
    #[case("upgrade_manifests.sh", "cluster-upgrade")]
    #[case("upgrade-helper restore-vm -node n", "restore-vm --node n")]
    #[case("kubectl_complete-upgrade_toolkit wait x", "__complete wait x")]
    #[case(
        "upgrade-toolkit vm-live-migrate-detector n -shutdown -upgrade=up",
        "vm-live-migrate-detector n --shutdown --upgrade=up"
    )]
    #[case(
        "upgrade-toolkit version-guard -strict=false up -h",
        "version-guard --strict=false up -h"
    )]
    #[case("upgrade-toolkit restore-vm -- -node", "restore-vm -- -node")]
    #[case("upgrade-toolkit repo -iso x", "repo -iso x")]
    #[case("", "")]
    fn a_call_is_read_by_its_name_and_its_flags(#[case] call: &str, #[case] read: &str) {
        let words = |text: &str| text.split_whitespace().map(OsString::from).collect::<Vec<_>>();
        let mut expected = words(read);
        expected.insert(0, "upgrade-toolkit".into());
        assert_eq!(arguments(words(call)), expected);
    }

    #[test]
    fn u23_a_plugin_of_kubectl_is_shown_as_people_call_it() {
        let shown = arguments(["/usr/bin/kubectl-upgrade_toolkit", "wait"].map(OsString::from));
        assert_eq!(shown, ["kubectl upgrade-toolkit", "wait"]);
    }
}
