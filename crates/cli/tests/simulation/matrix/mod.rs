//! Every failure can be recovered: every way in which an upgrade can fail × every way to continue.
//!
//! Each case is a whole upgrade of a cluster of its own that fails, is repaired, and continues; in the end the cluster must be
//! upgraded, with nothing of ours left on it. [`failures`] is the table of failures, [`ways`] that of the ways,
//! [`sweep`] runs them all, together with the sweep. Here a handful runs with every test.
//!
//! `MATRIX_ONLY=text` runs only the cases whose name contains the text.

mod complete;
mod deletions;
mod end;
mod failure;
mod failures;
mod jobs;
mod play;
mod sweep;
mod two_plans;
mod ways;

use std::sync::atomic::{AtomicUsize, Ordering};

use failure::Failure;
use ways::{PENDING, Way};

use crate::in_parallel::in_parallel;

/// How many cases of all tests of this process have been run, and how many of them wait for a repair.
static RUN: AtomicUsize = AtomicUsize::new(0);
static LATE: AtomicUsize = AtomicUsize::new(0);

/// Plays failures in every way that leads on from them. A case that is known not to end well must not end well: else it
/// is to be taken off the list.
fn play_all(what: &str, failures: &[Failure]) {
    let only = std::env::var("MATRIX_ONLY").unwrap_or_default();
    #[allow(
        clippy::disallowed_methods,
        reason = "how long the cases take is part of what is printed"
    )]
    let began = std::time::Instant::now();
    let cases = failures.iter().flat_map(|failure| {
        let name = move |way: &Way| format!("{}, {failure} × {way}", failure.cluster);
        failure.ways().iter().map(move |way| (failure, *way, name(way)))
    });
    let cases: Vec<(&Failure, Way, String)> = cases.filter(|(.., name)| name.contains(&only)).collect();
    let wrong = in_parallel(&cases, |(failure, way, name)| {
        let pending = PENDING
            .iter()
            .find(|(parts, ways, _)| parts.iter().all(|part| name.contains(part)) && ways.contains(way));
        let played = std::panic::catch_unwind(|| play::play(failure, *way));
        let played = played.unwrap_or_else(|_| Err(vec!["it panicked".to_owned()]));
        match (played, pending) {
            (Ok(took), None) => {
                println!("ended    {name} (after {took})");
                None
            }
            (Err(why), Some((.., blocked_by))) => {
                LATE.fetch_add(1, Ordering::SeqCst);
                println!("pending  {name}: {blocked_by}: {}", why.join("; "));
                None
            }
            (Ok(_), Some((.., blocked_by))) => {
                println!("ENDED    {name}");
                Some(format!("{name}: it ends well now; take it off the list ({blocked_by})"))
            }
            (Err(why), None) => {
                println!("FAILED   {name}: {}", why.join("; "));
                Some(format!("{name}: {}", why.join("; ")))
            }
        }
    });
    let (count, wrong) = (cases.len(), wrong.into_iter().flatten().collect::<Vec<String>>());
    let so_far = RUN.fetch_add(count, Ordering::SeqCst) + count;
    let late = LATE.load(Ordering::SeqCst);
    let took = began.elapsed().as_secs();
    println!("{what}: {count} cases in {took} s; {so_far} so far, {late} of them pending");
    assert!(
        wrong.is_empty(),
        "{} of {count} cases went otherwise:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
fn some_failures_of_each_sort_have_a_way_to_the_end() {
    play_all("some of each sort", &failures::some());
}

#[test]
fn no_case_is_played_twice() {
    let mut names: Vec<String> = failures::all()
        .iter()
        .map(|failure| format!("{}, {failure}", failure.cluster))
        .collect();
    let count = names.len();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), count);
}
