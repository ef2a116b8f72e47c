//! The command `logs` as a user runs it, and the archive of a rehearsal: every line of the upgrade's pods once, in order.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::Read,
    path::Path,
};

use serde_json::Value;

use crate::{
    rehearse_cli::{rehearse, text},
    serve_logs::{pod, served},
    support::Served,
};

/// The files of an archive, by their paths.
fn archive(path: &Path) -> BTreeMap<String, String> {
    let mut archive = zip::ZipArchive::new(File::open(path).unwrap()).unwrap();
    let mut files = BTreeMap::new();
    for number in 0..archive.len() {
        let mut file = archive.by_index(number).unwrap();
        let name = file.name().unwrap().into_owned();
        let mut content = String::new();
        file.read_to_string(&mut content).unwrap();
        files.insert(name, content);
    }
    files
}

/// The log of the first pod whose name has this in it.
fn log<'a>(files: &'a BTreeMap<String, String>, part: &str) -> &'a str {
    let found = files.iter().find(|(path, _)| path.contains(part));
    found.unwrap_or_else(|| panic!("{part}: {:?}", files.keys())).1
}

/// The numbers of the steps that a log of a program has, in its order.
fn steps(log: &str) -> Vec<(usize, usize)> {
    let step = |line: &str| {
        let line: Value = serde_json::from_str(&line[line.find('{')?..]).ok()?;
        let (number, count) = line["fields"]["message"]
            .as_str()?
            .strip_prefix("step ")?
            .split_once(" of ")?;
        Some((number.parse().ok()?, count.parse().ok()?))
    };
    log.lines().filter_map(step).collect()
}

fn all_steps_once(log: &str) {
    let found = steps(log);
    let count = found.first().unwrap_or_else(|| panic!("no steps: {log}")).1;
    // A step may run a program with steps of its own.
    let found: Vec<usize> = found.iter().filter(|step| step.1 == count).map(|step| step.0).collect();
    assert_eq!(found, (1..=count).collect::<Vec<_>>());
}

#[test]
fn the_archive_of_a_rehearsal_has_every_line_of_every_program_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("logs.zip");
    let output = rehearse(&["--logs", path.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("logs.zip: "), "{}", text(&output.stderr));
    assert!(!folder.path().join("logs.zip.partial").exists());
    let files = archive(&path);
    all_steps_once(log(&files, "-cluster-upgrade-"));
    for node in ["node-1", "node-2", "node-3"] {
        for job in ["pre-drain", "post-drain"] {
            all_steps_once(log(&files, &format!("-{job}-{node}-")));
        }
    }
    for (path, log) in files.iter().filter(|(path, _)| path.starts_with("logs/")) {
        let lines: Vec<&str> = log.lines().collect();
        let once: BTreeSet<&str> = lines.iter().copied().collect();
        assert_eq!(lines.len(), once.len(), "{path} has lines twice");
        // What is deleted while it runs may have had more to say; a Job that has ended has not.
        let has_ended = path.ends_with("/apply.log");
        assert!(!has_ended || !log.contains("--- gap"), "{path}: {log}");
    }
    let index: Value = serde_json::from_str(&files["index.json"]).unwrap();
    let of_index = index["logs"].as_array().unwrap();
    let logs = files.keys().filter(|path| path.starts_with("logs/")).count();
    assert_eq!(of_index.len(), logs);
    let components: BTreeSet<&str> = of_index.iter().filter_map(|log| log["component"].as_str()).collect();
    for component in ["repo", "image-preload", "cluster-upgrade", "pre-drain", "post-drain"] {
        assert!(components.contains(component), "{component}: {components:?}");
    }
    assert!(
        files["timeline.txt"].ends_with(" Succeeded\n"),
        "{}",
        files["timeline.txt"]
    );
    for file in [
        "upgradeplan.yaml",
        "nodes.yaml",
        "jobs-harvester-system.yaml",
        "events-default.yaml",
    ] {
        assert!(files[file].contains("name: "), "{file}");
    }
}

/// The lines of `logs`, each with its time, its pod and container, and its text.
fn lines(printed: &str) -> Vec<(&str, &str, &str)> {
    let line = |line| {
        let mut parts = str::splitn(line, 3, ' ');
        (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap_or(""))
    };
    printed.lines().map(line).collect()
}

fn in_order(printed: &str) {
    let times: Vec<&str> = lines(printed).iter().map(|(time, ..)| *time).collect();
    assert!(times.is_sorted(), "{printed}");
}

fn downloaded(served: &Served) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.zip");
    let said = served.toolkit(&["logs", "download", "mine", "-o", path.to_str().unwrap()]);
    assert!(said.contains("mine.zip: ") && said.contains(" logs, "), "{said}");
    let files = archive(&path);
    all_steps_once(log(&files, "mine-cluster-upgrade-"));
    assert!(files["upgradeplan.yaml"].contains("name: mine"));
}

#[test]
fn logs_are_shown_in_order_filtered_and_downloaded() {
    let served = served();
    let cluster = pod(&served, "cluster-upgrade", "Succeeded");
    let all = served.toolkit(&["logs", "mine"]);
    in_order(&all);
    let pods: BTreeSet<&str> = lines(&all).iter().map(|(_, pod, _)| *pod).collect();
    assert!(pods.contains(format!("{cluster}/apply").as_str()), "{pods:?}");
    assert!(pods.iter().any(|pod| pod.contains("mine-repo-")), "{pods:?}");
    let one = served.toolkit(&["logs", "--pod", &cluster]);
    all_steps_once(&one);
    assert_eq!(served.toolkit(&["logs", "--component", "cluster-upgrade"]), one);
    assert_eq!(served.toolkit(&["logs", "--node", "no-such-node"]), "");
    let (last, ..) = *lines(&one).last().unwrap();
    let since = served.toolkit(&["logs", "--pod", &cluster, "--since", last]);
    assert!(
        !since.is_empty() && since.len() < one.len() && one.ends_with(&since),
        "{since}"
    );
    downloaded(&served);
}

#[test]
fn logs_are_followed_and_collected_while_the_upgrade_runs() {
    let served = served();
    pod(&served, "cluster-upgrade", "Running");
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("kept");
    let dir = dir.to_str().unwrap();
    served.toolkit_lines(&["logs", "collect", "mine", "--dir", dir], |said| {
        said.find("it collects", |line| {
            line.contains("collecting the logs of mine").then_some(())
        });
        served.toolkit_lines(&["logs", "-f", "--component", "cluster-upgrade"], |followed| {
            let mut shown = String::new();
            followed.find("the last step", |line| {
                shown.push_str(line);
                shown.push('\n');
                steps(&shown)
                    .last()
                    .filter(|(number, count)| number == count)
                    .map(|_| ())
            });
            all_steps_once(&shown);
        });
        // What is kept is whole soon after it was shown, also to a reader while the collector writes.
        let kept = crate::support::eventually("the last step is kept", || {
            let kept = served.toolkit(&["logs", "--dir", dir, "--component", "cluster-upgrade"]);
            let is_whole = steps(&kept).last().is_some_and(|(number, count)| number == count);
            is_whole.then_some(kept)
        });
        all_steps_once(&kept);
    });
    let path = folder.path().join("kept.zip");
    served.toolkit(&["logs", "download", "--dir", dir, "-o", path.to_str().unwrap()]);
    all_steps_once(log(&archive(&path), "mine-cluster-upgrade-"));
}

#[test]
fn two_collectors_do_not_write_to_one_folder() {
    let served = served();
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().to_str().unwrap();
    served.toolkit_lines(&["logs", "collect", "mine", "--dir", dir], |said| {
        said.find("it collects", |line| {
            line.contains("collecting the logs of mine").then_some(())
        });
        let output = served.toolkit_fails(&["logs", "collect", "mine", "--dir", dir]);
        assert!(output.contains("another `logs collect` writes to"), "{output}");
    });
}
