//! A forecast as people and scripts read it.

use checks::finding::{Finding, ObjectRef, Severity};

use super::*;
use crate::style::Style;

fn finding(id: &str, object: ObjectRef) -> Finding {
    Finding {
        id: id.to_owned(),
        severity: Severity::Error,
        objects: vec![object],
        since: None,
        message: format!("{id} is wrong"),
        remedy: format!("Fix {id}."),
        commands: vec!["kubectl get nodes".to_owned()],
        link: String::new(),
        overridden_by: None,
    }
}

fn blocker(name: &str) -> Blocker {
    Blocker {
        kind: BlockerKind::Budget,
        node: Some("node-2".to_owned()),
        objects: vec![ObjectRef::new("PodDisruptionBudget", Some("shop"), name)],
        message: "Budget allows no eviction.".to_owned(),
        remedy: "Relax the budget.".to_owned(),
        commands: Vec::new(),
        id: Some("D02".to_owned()),
        in_rehearsal: Some("the budget was deleted.".to_owned()),
    }
}

fn forecast() -> Forecast {
    Forecast {
        verdict: Verdict::Succeeds,
        from: "v1.7.1".to_owned(),
        to: "v1.8.0".to_owned(),
        taken_at: "2026-03-13T12:00:00Z".parse().unwrap_or_default(),
        cluster: ClusterSize {
            nodes: 3,
            vms: 1,
            volumes: 2,
        },
        refusals: Vec::new(),
        blockers: Vec::new(),
        errors: Vec::new(),
        warnings: 0,
        completed: true,
        seconds: 3_750,
        phases: vec![PhaseTime {
            name: "NodeUpgrade".to_owned(),
            seconds: Some(2_700),
        }],
        nodes: vec![NodeTime {
            name: "node-1".to_owned(),
            begins: Some(60),
            seconds: None,
        }],
        moves: vec![VmMove {
            vm: "shop/web".to_owned(),
            from: "node-1".to_owned(),
            to: "node-2".to_owned(),
            begins: 100,
            seconds: 25,
        }],
        shutdowns: vec![VmOff {
            vm: "shop/ml".to_owned(),
            node: "node-1".to_owned(),
            why: "it uses a device of its node".to_owned(),
            begins: 90,
            seconds: Some(800),
            restored: true,
        }],
        change_first: Vec::new(),
        unknown: vec!["Pods: not in the folder.".to_owned()],
        assumptions: Vec::new(),
    }
}

#[test]
fn the_text_says_what_happens_to_nodes_and_vms_and_ends_with_the_verdict() {
    let text = text(&forecast(), 80, Style::default());
    for expected in [
        "Forecast of the upgrade v1.7.1 → v1.8.0 of 3 nodes, 1 running VM and 2 volumes",
        "Admission would accept the plan.",
        "shop/ml",
        "it uses a device of its node",
        "shop/web",
        "Not known\n  Pods: not in the folder.",
    ] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
    assert!(
        text.ends_with("The upgrade would succeed in about 1:02:30.\n"),
        "{text}"
    );
}

#[test]
fn the_worst_of_what_was_found_is_the_verdict() {
    let mut some = forecast();
    assert_eq!(some.judged(), Verdict::Succeeds);
    some.errors.push(finding("P35", ObjectRef::new("Node", None, "node-1")));
    assert_eq!(some.judged(), Verdict::Doubtful);
    some.blockers.push(blocker("web"));
    assert_eq!(some.judged(), Verdict::Blocked);
    some.refusals
        .push(finding("P03", ObjectRef::new("Node", None, "node-1")));
    assert_eq!(some.judged(), Verdict::Refused);
    let unfinished = Forecast {
        completed: false,
        ..forecast()
    };
    assert_eq!(unfinished.judged(), Verdict::Blocked);
}

#[test]
fn refusals_come_first_in_what_to_change_and_an_object_is_named_once() {
    let node = || ObjectRef::new("Node", None, "node-1");
    let changes = changes(
        &[finding("P03", node())],
        &[blocker("web"), blocker("web")],
        &[
            finding("P41", node()),
            finding("P77", ObjectRef::new("KubeVirt", None, "kubevirt")),
        ],
    );
    let ids: Vec<_> = changes
        .iter()
        .map(|change| change.id.as_deref().unwrap_or_default())
        .collect();
    assert_eq!(ids, ["P03", "D02", "P77"]);
}

#[test]
fn json_and_yaml_read_back_as_the_same_forecast() {
    let mut some = forecast();
    some.blockers.push(blocker("web"));
    let from_json: Option<Forecast> = json(&some).ok().and_then(|text| serde_json::from_str(&text).ok());
    assert_eq!(from_json.as_ref(), Some(&some));
    let from_yaml: Option<Forecast> = yaml(&some).ok().and_then(|text| serde_saphyr::from_str(&text).ok());
    assert_eq!(from_yaml.as_ref(), Some(&some));
}

#[test]
fn names_of_others_are_no_markup_and_steer_no_terminal() {
    let mut some = forecast();
    let hostile = "shop/\u{1b}[2J<img src=x>|a`b\n# head";
    some.moves[0].vm = hostile.to_owned();
    some.shutdowns[0].vm = hostile.to_owned();
    some.blockers.push(blocker(hostile));
    some.unknown.push(hostile.to_owned());
    let markdown = markdown(&some);
    assert!(!markdown.contains("<img") && !markdown.contains('\u{1b}'), "{markdown}");
    assert!(
        !markdown.contains("\n# head") && !markdown.contains("|a`b"),
        "{markdown}"
    );
    assert!(!text(&some, 80, Style::default()).contains('\u{1b}'));
}

#[test]
fn of_very_many_vms_some_are_listed_and_the_rest_is_counted() {
    let mut some = forecast();
    some.moves = vec![some.moves[0].clone(); 1_000];
    let shown = text(&some, 80, Style::default());
    assert!(
        shown.contains("and 980 more; -o json lists all") && shown.lines().count() < 80,
        "{shown}"
    );
    assert!(markdown(&some).contains("and 800 more"));
}
