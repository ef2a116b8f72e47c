//! What the binary gives a shell: completions, manual pages, and itself as a plugin of kubectl.

use std::{collections::BTreeSet, process::Command};

fn toolkit() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
}

fn printed(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn bash_completes_commands_and_flags() {
    let script = printed(toolkit().args(["completion", "bash"]));
    for (line, expected) in [
        ("upgrade-toolkit reh", "rehearse"),
        ("upgrade-toolkit rehearse --wit", "--witness"),
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        let ask = format!(
            "{script}\nCOMP_WORDS=({line}); COMP_CWORD={}; \
             called=$(complete -p upgrade-toolkit | sed 's/.* -F \\([^ ]*\\).*/\\1/'); \
             $called upgrade-toolkit {} {}; echo \"${{COMPREPLY[*]}}\"",
            words.len() - 1,
            words[words.len() - 1],
            words[words.len() - 2],
        );
        let program = assert_cmd::cargo::cargo_bin("upgrade-toolkit");
        let mut path = program.parent().unwrap().as_os_str().to_owned();
        path.push(":");
        path.push(std::env::var_os("PATH").unwrap());
        let completed = printed(Command::new("bash").args(["--norc", "-c", &ask]).env("PATH", path));
        assert_eq!(completed.trim(), expected);
    }
}

#[test]
fn other_shells_have_their_scripts() {
    let zsh = printed(toolkit().args(["completion", "zsh"]));
    assert!(zsh.starts_with("#compdef upgrade-toolkit"), "{zsh}");
    let fish = printed(toolkit().args(["completion", "fish"]));
    assert!(fish.contains("complete -c upgrade-toolkit"), "{fish}");
    assert_eq!(
        toolkit().args(["completion", "tea"]).output().unwrap().status.code(),
        Some(2)
    );
}

#[test]
fn every_command_has_its_manual_page() {
    let directory = tempfile::tempdir().unwrap();
    printed(toolkit().arg("man").arg(directory.path()));
    let names = std::fs::read_dir(directory.path()).unwrap();
    let pages: BTreeSet<String> = names
        .map(|name| name.unwrap().file_name().into_string().unwrap())
        .collect();
    let help = printed(toolkit().arg("--help"));
    let commands = help
        .lines()
        .skip_while(|line| *line != "Commands:")
        .skip(1)
        .take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    let mut count = 0;
    for name in names.filter(|name| !name.is_empty() && *name != "help") {
        assert!(
            pages.contains(&format!("upgrade-toolkit-{name}.1")),
            "{name}: {pages:?}"
        );
        count += 1;
    }
    assert!(count >= 5, "{help}");
    let rehearse = std::fs::read_to_string(directory.path().join("upgrade-toolkit-rehearse.1")).unwrap();
    assert!(
        rehearse.contains("Examples:") && rehearse.contains("witness"),
        "{rehearse}"
    );
}

#[test]
fn kubectl_runs_it_as_its_plugin() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubectl-upgrade_toolkit");
    std::os::unix::fs::symlink(assert_cmd::cargo::cargo_bin("upgrade-toolkit"), link).unwrap();
    let mut path = std::ffi::OsString::from(folder.path());
    path.push(":");
    path.push(std::env::var_os("PATH").unwrap());
    let kubectl = || {
        let mut command = Command::new(std::env::var_os("KUBECTL").unwrap_or_else(|| "kubectl".into()));
        command.env("PATH", &path).env("HOME", folder.path());
        command
    };
    let plan = printed(kubectl().args(["upgrade-toolkit", "rehearse", "--nodes", "1", "-o", "json"]));
    let plan: serde_json::Value = serde_json::from_str(&plan).unwrap();
    assert_eq!(plan["status"]["currentPhase"], "Succeeded");
    let plugins = printed(kubectl().args(["plugin", "list"]));
    assert!(plugins.contains("kubectl-upgrade_toolkit"), "{plugins}");
}
