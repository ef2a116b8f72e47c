//! Completion in real shells, and through kubectl.

use std::{
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use super::{
    Ran, binary,
    cluster::{Cluster, at_work},
    folder,
};

/// A folder with links to the binary, as an administrator makes them, in front of PATH.
fn path_with(links: &[&str], name: &str) -> String {
    let folder = folder(name);
    for link in links {
        symlink(binary(), folder.join(link)).unwrap();
    }
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

fn shell(program: &str, script: &str, cluster: &Cluster, path: &str) -> Ran {
    let mut command = Command::new(program);
    command
        .args(["-c", script])
        .env("KUBECONFIG", &cluster.kubeconfig)
        .env("HOME", &cluster.folder)
        .env("PATH", path)
        .stdin(Stdio::null());
    Ran::of(command.output().unwrap())
}

/// What bash offers in the place of the final word.
///
/// Completion gives up after two seconds, and a busy machine may need longer: no name at all is asked for again.
fn offered(cluster: &Cluster, path: &str, words: &[&str]) -> Vec<String> {
    let tries = (0..20).map(|_| offered_once(cluster, path, words));
    tries.into_iter().find(|names| !names.is_empty()).unwrap_or_default()
}

fn offered_once(cluster: &Cluster, path: &str, words: &[&str]) -> Vec<String> {
    let quoted: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
    let script = format!(
        "source <(upgrade-toolkit completion bash) || exit 9; COMP_WORDS=(upgrade-toolkit {}); COMP_CWORD={}; \
         _upgrade_toolkit; printf '%s\\n' \"${{COMPREPLY[@]}}\"; complete -p upgrade-toolkit >&2",
        quoted.join(" "),
        words.len()
    );
    let ran = shell("bash", &script, cluster, path).ended(0);
    assert!(ran.err.contains("-F _upgrade_toolkit"), "{ran:#?}");
    let names = ran.out.lines().filter(|line| !line.is_empty());
    names.map(str::to_owned).collect()
}

#[test]
fn bash_completes_commands_flags_and_the_names_of_plans_and_nodes() {
    let cluster = Cluster::start("bash", 0);
    cluster.put_plan("hvst-upgrade-x7k2p", &at_work("ISODownloading"));
    let path = path_with(&["upgrade-toolkit"], "bash-path");
    let offered = |words: &[&str]| offered(&cluster, &path, words);
    assert_eq!(offered(&["pause", "node-"]), ["node-1", "node-2", "node-3"]);
    assert_eq!(offered(&["pause", "node-1", ""]), ["node-1", "node-2", "node-3"]);
    assert_eq!(offered(&["resume", "--plan", ""]), ["hvst-upgrade-x7k2p"]);
    for command in ["status", "wait", "retry", "delete", "postflight"] {
        assert_eq!(offered(&[command, "hvst"]), ["hvst-upgrade-x7k2p"], "{command}");
    }
    assert_eq!(offered(&["preflight", "--version", "v1"]), ["v1.8.0"]);
    assert_eq!(offered(&["upgrade", "--version", "v1"]), ["v1.8.0"]);
    assert_eq!(
        offered(&["upgrade", "--pause-node", ""]),
        ["node-1", "node-2", "node-3"]
    );
    assert_eq!(offered(&["doctor", "--context", ""]), ["here", "there"]);
    assert_eq!(offered(&["prefl"]), ["preflight"]);
    assert_eq!(offered(&["preflight", "-o", "j"]), ["json", "junit"]);
    assert!(
        offered_once(&cluster, &path, &["pause", "--context", "there", ""]).is_empty(),
        "a cluster that does not answer has no names"
    );
}

#[test]
fn kubectl_completes_the_plugin_and_calls_it_by_its_name() {
    let cluster = Cluster::start("plugin", 0);
    cluster.put_plan("up", &at_work("ISODownloading"));
    let path = path_with(
        &["kubectl-upgrade_toolkit", "kubectl_complete-upgrade_toolkit"],
        "plugin-path",
    );
    let kubectl = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
    let run = |arguments: &str| shell("sh", &format!("{kubectl} upgrade-toolkit {arguments}"), &cluster, &path);
    run("status").ended(0).says("UpgradePlan up");
    run("status --context here -n default").ended(0).says("UpgradePlan up");
    run("doctor --context moon").ended(3).complains("no context \"moon\"");
    let usage = run("pause --help").ended(0);
    assert!(
        usage.out.contains("Usage: kubectl upgrade-toolkit pause"),
        "{}",
        usage.out
    );
    run("--help").ended(0).says("Usage: kubectl upgrade-toolkit <COMMAND>");
    let wrong = run("pause").ended(2);
    assert!(
        wrong.err.contains("Usage: kubectl upgrade-toolkit pause"),
        "{}",
        wrong.err
    );
    // What kubectl asks to complete a plugin.
    let script = "kubectl_complete-upgrade_toolkit pause node-2";
    let answers = (0..20).map(|_| shell("sh", script, &cluster, &path).ended(0).out);
    let answer = answers.into_iter().find(|answer| answer != ":4\n");
    assert_eq!(answer.as_deref(), Some("node-2\n:4\n"));
    assert!(
        Path::new(&path.split(':').next().unwrap())
            .join("kubectl-upgrade_toolkit")
            .is_symlink()
    );
}

#[test]
fn the_scripts_of_other_shells_are_read_by_them() {
    let cluster = Cluster::start("shells", 0);
    let path = path_with(&["upgrade-toolkit"], "shells-path");
    for (name, check) in [("zsh", "zsh -n"), ("fish", "fish --no-execute")] {
        let file = cluster.file(&format!("script.{name}"));
        let script = cluster.run(&["completion", name]).ended(0);
        assert!(script.out.contains("__complete"), "{}", script.out);
        std::fs::write(&file, script.out).unwrap();
        if Command::new(name).arg("--version").output().is_err() {
            println!("not checked: there is no {name}");
            continue;
        }
        let ran = shell("sh", &format!("{check} {file}"), &cluster, &path).ended(0);
        assert_eq!(ran.err, "", "{name}");
    }
    for shell in ["powershell", "elvish"] {
        cluster.run(&["completion", shell]).ended(0).says("upgrade-toolkit");
    }
    cluster.run(&["completion", "cmd"]).ended(2);
}
