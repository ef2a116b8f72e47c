//! Runs the commands of the pages, each page on an embedded cluster of its own, with the real kubectl.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::Command,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use release::testing::Sources;

use crate::{
    docs::{
        console,
        page::{self, Block, Kind, Page},
    },
    support::Served,
};

/// Why commands are not run, and how many blocks may say so. Everything else runs.
const NORUN: [(&str, usize); 8] = [
    // The chart is installed on a real control plane in tests of its own.
    ("helm", 3),
    // Images are built and installed by container engines, which are not everywhere.
    ("image", 6),
    // On a node of a real cluster.
    ("node", 2),
    // Real nodes on this machine, as root; `hack/nodes check` runs these commands.
    ("nodes", 3),
    // The embedded API has no streams: no port-forward.
    ("stream", 2),
    // Benchmarks build in release mode and take minutes.
    ("long", 5),
    // What would run these tests inside these tests, or build the program that they use.
    ("itself", 1),
    ("build", 2),
];

/// Time in the clusters runs so many times as fast.
const SPEED: &str = "1200";
/// Seconds that the commands of a cluster may take. Only a test that fails waits this long.
const PATIENCE: &str = "300";
/// Clusters at a time.
const TOGETHER: usize = 3;

/// What commands find around them. Commands without an end are ended as soon as they have shown what they are for: a
/// watch a plan, a served rehearsal its address.
const AROUND: &str = r#"
set -euo pipefail
KUBECTL=${KUBECTL:-$(command -v kubectl)}
until_shown() {
    local wanted=$1 line pid
    shift
    exec 3< <(exec timeout 60 "$@")
    pid=$!
    while read -r line <&3; do
        printf '%s\n' "$line"
        if [[ $line == *"$wanted"* ]]; then
            kill "$pid"
            exec 3<&-
            return
        fi
    done
    return 1
}
kubectl() {
    case " $* " in
    *" -w "*) until_shown hvst-upgrade- "$KUBECTL" "$@" ;;
    *) "$KUBECTL" "$@" ;;
    esac
}
cargo() {
    if [ "${*:1:3}" != "run --release --" ]; then
        echo "cargo $*: not in a test" >&2
        return 1
    fi
    set -- "${@:4}"
    case "$*" in
    *--serve*) until_shown "serving on" upgrade-toolkit "${@/127.0.0.1:8001/127.0.0.1:0}" ;;
    *) upgrade-toolkit "$@" ;;
    esac
}
"#;

/// Commands that share a cluster.
struct Session {
    page: String,
    blocks: Vec<Block>,
}

#[test]
fn every_command_of_the_documentation_runs() {
    // One page alone, for its author.
    let only = std::env::var("DOCS_PAGE").ok();
    let pages = page::with_commands().into_iter();
    let pages = pages.filter(|page| only.as_ref().is_none_or(|only| page.name == *only));
    let sessions: Vec<Session> = pages.flat_map(|page| sessions(&page)).collect();
    let least = if only.is_some() { 0 } else { 8 };
    assert!(sessions.len() > least, "only {} sessions", sessions.len());
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..TOGETHER {
            scope.spawn(|| {
                while let Some(session) = sessions.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if let Err(failure) = run(session) {
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n\n"));
}

#[test]
fn few_commands_are_not_run_and_each_has_a_good_reason() {
    let mut counts = NORUN.map(|(reason, _)| (reason, 0));
    for page in page::with_commands() {
        for block in page.blocks() {
            let Some(reason) = block.norun() else { continue };
            let known = counts.iter_mut().find(|(known, _)| *known == reason);
            let known = known.unwrap_or_else(|| panic!("{}:{}: unknown reason {reason:?}", page.name, block.at));
            known.1 += 1;
        }
    }
    for ((reason, found), (_, most)) in counts.iter().zip(NORUN) {
        assert!(*found <= most, "{found} blocks say norun={reason}; {most} may");
    }
}

#[test]
fn pages_in_chinese_have_the_commands_of_their_originals() {
    for (original, translation) in page::translated() {
        let visible = |page: &Page| -> Vec<(Vec<String>, String)> {
            let blocks = page.blocks().into_iter().filter(|block| block.kind != Kind::Hidden);
            blocks
                .map(|block| (block.words.clone(), without_comments(&block)))
                .collect()
        };
        assert_eq!(visible(&original), visible(&translation), "{}", translation.name);
    }
}

fn without_comments(block: &Block) -> String {
    let lines = block
        .lines
        .iter()
        .map(|line| line.split(" # ").next().unwrap_or_default());
    let lines = lines.filter(|line| !line.starts_with('#')).map(str::trim_end);
    lines.collect::<Vec<_>>().join("\n")
}

/// The commands of a page, by the cluster they run on.
fn sessions(page: &Page) -> Vec<Session> {
    let mut sessions: Vec<Vec<Block>> = vec![Vec::new()];
    for block in page.blocks() {
        if block.is("fresh") {
            sessions.push(Vec::new());
        }
        if block.norun().is_none()
            && let Some(last) = sessions.last_mut()
        {
            last.push(block);
        }
    }
    let sessions = sessions.into_iter().filter(|blocks| !blocks.is_empty());
    let page = page.name.clone();
    sessions
        .map(|blocks| Session {
            page: page.clone(),
            blocks,
        })
        .collect()
}

/// Runs a session; the failure says which block failed, and what it printed.
fn run(session: &Session) -> Result<(), String> {
    let served = Served::start(&["--speed", SPEED, "--no-plan"]);
    let home = tempfile::tempdir().unwrap();
    let bin = home.path().join("bin");
    fs::create_dir(&bin).unwrap();
    symlink(
        assert_cmd::cargo::cargo_bin("upgrade-toolkit"),
        bin.join("upgrade-toolkit"),
    )
    .unwrap();
    let work = home.path().join("work");
    fs::create_dir(&work).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new("timeout");
    command
        .args(["--kill-after=5", PATIENCE, "bash", "-c", &script(session, home.path())])
        .current_dir(&work)
        .env("KUBECONFIG", &served.kubeconfig)
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("PATH", path);
    let sample = session
        .blocks
        .iter()
        .any(|block| block.commands().contains("SAMPLE_ISO"));
    let sample = sample.then(Sources::sample);
    if let Some(sample) = &sample {
        command.env("SAMPLE_ISO", sample.iso());
    }
    let status = command.status().unwrap();
    let printed = |number: usize| fs::read_to_string(home.path().join(number.to_string()));
    for (number, block) in session.blocks.iter().enumerate() {
        let here = format!("{}:{}", session.page, block.at);
        let Ok(text) = printed(number) else {
            return Err(format!("{here}: not reached: {status}"));
        };
        if printed(number + 1).is_err() && !status.success() {
            let plans = [
                "get",
                "upgradeplans",
                "-o",
                "jsonpath={range .items[*]}{.metadata.name} {.status}{end}",
            ];
            let (_, plans) = served.kubectl_with(&plans, "");
            let (_, events) = served.kubectl_with(&["get", "events", "-A"], "");
            let commands = block.commands();
            return Err(format!(
                "{here}: {status}\n{commands}\nprinted\n{text}\nplans: {plans}\nevents:\n{events}"
            ));
        }
        console::shows(&block.shown(), &text).map_err(|why| format!("{here}: {why}"))?;
    }
    Ok(())
}

/// All blocks as one program, so that variables stay; each prints into a file of its own.
fn script(session: &Session, home: &Path) -> String {
    let mut script = AROUND.to_owned();
    for (number, block) in session.blocks.iter().enumerate() {
        let folder = if block.is("repo") {
            page::root()
        } else {
            home.join("work")
        };
        let _ = writeln!(
            script,
            "exec >{}/{number} 2>&1\ncd {}\n{}",
            home.display(),
            folder.display(),
            block.commands()
        );
    }
    script
}
