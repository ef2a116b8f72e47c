//! Every write of a clean upgrade, perturbed in every way: the end must be the same.

use rstest::rstest;

use crate::run::{Case, Perturbation, run};

/// Runs a case once for every write of its clean run, perturbed, and compares the ends.
fn sweep(case: &Case, perturbation: Perturbation) {
    let clean = run(case);
    assert_eq!(clean.violations, [""; 0]);
    let (mut runs, mut failures) = (0, Vec::new());
    for number in 1..=clean.writes.len() as u64 {
        let perturbed = Case {
            perturbed: Some((number, perturbation)),
            ..case.clone()
        };
        let write = &clean.writes[usize::try_from(number - 1).unwrap()];
        let what = format!("write {number} ({write}) × {perturbation:?}");
        let ended = std::panic::catch_unwind(|| run(&perturbed));
        runs += 1;
        match ended {
            Err(_) => failures.push(format!("{what}: did not end")),
            Ok(ended) if !ended.violations.is_empty() => failures.push(format!("{what}: {:?}", ended.violations)),
            Ok(ended) if ended.digest != clean.digest => {
                failures.push(format!(
                    "{what}: {}",
                    difference("", &clean.digest, &ended.digest).join("; ")
                ));
            }
            Ok(_) => {}
        }
    }
    println!("{runs} perturbed runs");
    assert!(
        failures.is_empty(),
        "{} of {runs} runs ended otherwise:\n{}",
        failures.len(),
        failures.join("\n")
    );
}

/// Where two values differ.
fn difference(path: &str, left: &serde_json::Value, right: &serde_json::Value) -> Vec<String> {
    use serde_json::Value;
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<_> = a.keys().chain(b.keys()).collect();
            let at = |map: &serde_json::Map<String, Value>, key: &str| map.get(key).cloned().unwrap_or_default();
            keys.iter()
                .flat_map(|key| difference(&format!("{path}/{key}"), &at(a, key), &at(b, key)))
                .collect()
        }
        (left, right) if left == right => Vec::new(),
        (left, right) => vec![format!("{path}: {left} became {right}")],
    }
}

#[rstest]
#[case(Perturbation::Crash)]
#[case(Perturbation::LostReply)]
#[case(Perturbation::Conflict)]
#[case(Perturbation::Unavailable)]
fn whatever_happens_to_any_write_the_upgrade_ends_the_same(#[case] perturbation: Perturbation) {
    sweep(&Case::three_nodes(), perturbation);
}
