//! The pods that an upgrade creates, compared with the programs that they run: names, arguments, environment, mounts and users
//! are written in one crate and read in another.

use std::{path::Path, process::Command};

use api::{JobType, NodePlan, UpgradePlan, annotations};
use cluster_upgrade::suspend_agent;
use manager::objects::{job, repo, suc_plan};
use plan::observed::{Accounts, Settings};
use rstest::rstest;
use serde_json::{Value, json};

use crate::packaging::root;

const ISO: repo::Iso<'_> = repo::Iso {
    claim: "claim",
    checksum: None,
};

/// Who a program must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum User {
    /// Root of the node: it changes files of the host, or mounts.
    NodeRoot,
    /// As the image says: an unprivileged user.
    Image,
    /// The one that CDI's importer leaves the ISO to.
    Importer,
}

/// A pod as it would run: what system-upgrade-controller adds is added.
pub(crate) struct Pod {
    container: Value,
    /// Where the root of the node is mounted, if it is.
    host: Option<String>,
    /// Its template: labels and specification.
    pub(crate) template: Value,
}

fn plan() -> UpgradePlan {
    UpgradePlan::new("up", Default::default())
}

fn of_template(object: impl serde::Serialize) -> Pod {
    let mut object = serde_json::to_value(object).unwrap();
    let template = object["spec"]["template"].take();
    let spec = &template["spec"];
    let container = spec["containers"][0].clone();
    let mounts = container["volumeMounts"].as_array().into_iter().flatten();
    let is_root = |mount: &&Value| {
        let volumes = spec["volumes"].as_array().into_iter().flatten();
        let mut hosts = volumes.filter(|volume| volume["hostPath"]["path"] == "/");
        hosts.any(|volume| volume["name"] == mount["name"])
    };
    let host = mounts.clone().find(is_root);
    Pod {
        host: host.map(|mount| mount["mountPath"].as_str().unwrap().to_owned()),
        container,
        template,
    }
}

/// The controller mounts the host's root at `/host` in every pod, gives it the host's network, processes and IPC, and takes
/// the security context as it is given. A Plan has no word for any of that (`pkg/upgrade/job/job.go`).
fn of_controller(plan: impl serde::Serialize) -> Pod {
    let plan = serde_json::to_value(plan).unwrap();
    let mut container = plan["spec"]["upgrade"].clone();
    // What a Plan calls `envs` is the environment of the container.
    let environment = container.as_object_mut().unwrap().remove("envs");
    container["env"] = environment.unwrap_or_default();
    let spec = json!({
        "hostIPC": true, "hostNetwork": true, "hostPID": true,
        "serviceAccountName": plan["spec"]["serviceAccountName"],
        "containers": [container],
        "volumes": [{"name": "host-root", "hostPath": {"path": "/", "type": "Directory"}}],
    });
    Pod {
        container,
        host: Some("/host".to_owned()),
        template: json!({"metadata": {"labels": plan["metadata"]["labels"]}, "spec": spec}),
    }
}

pub(crate) fn node_job(step: JobType) -> Pod {
    of_template(job::node(&plan(), &Settings::default(), step, "node-1", false).unwrap())
}

pub(crate) fn suc(runs: NodePlan) -> Pod {
    of_controller(suc_plan::build(&plan(), &Settings::default(), runs, 1, &["a/b:c".to_owned()]).unwrap())
}

pub(crate) fn repository(server: &str) -> Pod {
    let mut plan = plan();
    plan.metadata.annotations = Some([(annotations::REPO_SERVER.to_owned(), server.to_owned())].into());
    of_template(repo::deployment(&plan, &Settings::default(), 2, ISO, "up-repo-x").unwrap())
}

pub(crate) fn cluster_upgrade() -> Pod {
    of_template(job::cluster(&plan(), &Settings::default()).unwrap())
}

pub(crate) fn restore_vm() -> Pod {
    of_template(job::restore_vm(&plan(), &Settings::default(), "node-1").unwrap())
}

pub(crate) fn suspend_agent() -> Pod {
    of_controller(suspend_agent::plan(&plan(), "v", "toolkit:v1", "sa"))
}

fn words(value: &Value) -> Vec<String> {
    let words = value.as_array().into_iter().flatten();
    words.map(|word| word.as_str().unwrap().to_owned()).collect()
}

/// What the image adds to its base, with this binary.
fn layout(to: &Path) {
    let laid = Command::new(root().join("package/layout"))
        .arg(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
        .arg(to)
        .status();
    assert!(laid.unwrap().success());
}

/// What a program of the image says of itself, called as the pod calls it.
fn help(image: &Path, pod: &Pod) -> String {
    let mut command = words(&pod.container["command"]);
    command.extend(words(&pod.container["args"]));
    let output = Command::new(image.join("usr/local/bin").join(&command[0]))
        .args(&command[1..])
        .arg("--help")
        .output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
    // Lines are broken at blanks, also inside of brackets.
    let help = String::from_utf8(output.stdout).unwrap();
    help.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// What stands in brackets behind a label: `[default: …]`, `[env: NAME=]`.
fn bracketed<'a>(help: &'a str, label: &'a str) -> impl Iterator<Item = &'a str> {
    let begin = format!("[{label}: ");
    let parts: Vec<&str> = help.split(begin.as_str()).skip(1).collect();
    parts.into_iter().filter_map(|rest| rest.split([']', '=', '\n']).next())
}

/// Whether the image has a file or folder: by our layout, or by a line of its recipe.
fn is_in_image(image: &Path, path: &str) -> bool {
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let copied = |line: &str| line.starts_with("COPY --from=") && line.ends_with(path);
    image.join(path.trim_start_matches('/')).exists() || recipe.lines().any(|line| copied(line.trim_end_matches('/')))
}

fn user(pod: &Pod) -> User {
    let context = &pod.container["securityContext"];
    let is_privileged = context["privileged"] == json!(true);
    match (context["runAsUser"].as_i64(), is_privileged) {
        (Some(0), true) => User::NodeRoot,
        (Some(107), false) => User::Importer,
        (Some(1000), false) => User::Image,
        other => panic!("{other:?} is no known account: {context}"),
    }
}

/// Whether a path is in a volume of the pod, which is there whatever the image has.
fn is_mounted(pod: &Pod, path: &str) -> bool {
    let mounts = pod.container["volumeMounts"].as_array().into_iter().flatten();
    let mut places = mounts.filter_map(|mount| mount["mountPath"].as_str());
    places.any(|place| Path::new(path).starts_with(place))
}

#[rstest]
#[case::prepare(suc(NodePlan::ImagePreload), User::NodeRoot)]
#[case::image_check(suc(NodePlan::ImageCheck), User::Image)]
#[case::clean_images(suc(NodePlan::ImageCleanup), User::NodeRoot)]
#[case::skip_manifests(suc(NodePlan::SkipManifestsApply), User::NodeRoot)]
#[case::skip_manifests_no_more(suc(NodePlan::SkipManifestsRemove), User::NodeRoot)]
#[case::suspend_agent(suspend_agent(), User::NodeRoot)]
#[case::pre_drain(node_job(JobType::PreDrain), User::NodeRoot)]
#[case::post_drain(node_job(JobType::PostDrain), User::NodeRoot)]
#[case::single_node(node_job(JobType::SingleNodeUpgrade), User::NodeRoot)]
#[case::cluster_upgrade(cluster_upgrade(), User::Image)]
#[case::restore_vm(restore_vm(), User::Image)]
#[case::repo(repository("toolkit"), User::Importer)]
fn a_pod_gives_its_program_what_it_reads_and_no_more_rights_than_it_needs(#[case] pod: Pod, #[case] expected: User) {
    assert_eq!(user(&pod), expected);
    let image = tempfile::tempdir().unwrap();
    layout(image.path());
    let help = help(image.path(), &pod);

    let read: Vec<&str> = bracketed(&help, "env").collect();
    for variable in pod.container["env"].as_array().into_iter().flatten() {
        let name = variable["name"].as_str().unwrap();
        assert!(read.contains(&name), "{name} is not read: {read:?}");
    }
    let paths: Vec<&str> = bracketed(&help, "default")
        .filter(|value| value.starts_with('/'))
        .collect();
    for path in &paths {
        let is_made = is_mounted(&pod, path) || Some(*path) == pod.host.as_deref();
        assert!(
            is_made || is_in_image(image.path(), path),
            "{path} is nowhere in the image"
        );
    }
    // Who works on the host has the host, and who does not has it not, unless the controller gives it to all pods.
    let works_on_host = paths.contains(&"/host");
    assert_eq!(works_on_host, expected == User::NodeRoot);
    assert!(!works_on_host || pod.host.as_deref() == Some("/host"));
    for mount in pod.container["volumeMounts"].as_array().into_iter().flatten() {
        let path = mount["mountPath"].as_str().unwrap();
        let is_named = words(&pod.container["args"]).iter().any(|word| word.starts_with(path));
        let is_read = paths.iter().any(|read| Path::new(read).starts_with(path));
        assert!(is_named || is_read, "{path} is mounted and not used");
    }
}

#[test]
fn nginx_has_its_programs_its_configuration_and_the_rights_to_mount() {
    let pod = repository("nginx");
    assert_eq!(user(&pod), User::NodeRoot);
    let script = &words(&pod.container["command"])[2];
    assert_eq!(pod.container["env"][0]["name"], "NGINX_CONFIG");
    assert!(script.contains("$NGINX_CONFIG"), "{script}");
    let mount = pod.container["volumeMounts"][0]["mountPath"].as_str().unwrap();
    assert!(script.contains(&format!(" {mount}/disk.img ")), "{script}");
    let programs = std::fs::read_to_string(root().join("package/programs")).unwrap();
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let is_there = |name: &str| {
        let listed = |line: &str| line.split_whitespace().next() == Some(name);
        programs.lines().any(listed) || (name == "nginx" && recipe.contains("${packages} nginx"))
    };
    for name in ["sh", "mkdir", "mount", "nginx", "test"] {
        assert!(is_there(name), "the image has no {name}");
    }
}

#[test]
fn the_account_of_the_managers_plans_is_that_of_the_plan_that_its_job_makes() {
    let settings = Settings {
        accounts: Accounts {
            plans: Some("of-the-users-choice".to_owned()),
            ..Accounts::default()
        },
        ..Settings::default()
    };
    let pod = of_template(job::cluster(&plan(), &settings).unwrap());
    let variables = pod.container["env"].as_array().unwrap();
    let account = variables
        .iter()
        .find(|variable| variable["name"] == "UPGRADE_PLAN_SERVICE_ACCOUNT");
    assert_eq!(account.unwrap()["value"], "of-the-users-choice");
    let made = suspend_agent::plan(&plan(), "v", "toolkit:v1", "of-the-users-choice");
    assert_eq!(made["spec"]["serviceAccountName"], "of-the-users-choice");
}
