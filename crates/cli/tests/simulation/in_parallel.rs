//! Many runs of one test, side by side: libtest takes tests in the order of their names, and the last long one must not leave
//! other cores idle.

use std::sync::{
    Mutex,
    atomic::{AtomicUsize, Ordering},
};

/// More runs of a test at a time than this need more memory than they save time.
const MOST: usize = 4;

/// Does the same with each item; the results in the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(items: &[T], each: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        loop {
            let index = next.fetch_add(1, Ordering::SeqCst);
            let Some(item) = items.get(index) else { return };
            let result = each(item);
            results.lock().unwrap().push((index, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..cores.min(MOST).min(items.len()) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[test]
fn every_item_is_done_once_and_results_keep_their_order() {
    let items: Vec<usize> = (0..100).collect();
    let doubled: Vec<usize> = items.iter().map(|item| item * 2).collect();
    assert_eq!(in_parallel(&items, |item| item * 2), doubled);
    assert!(in_parallel(&[], |item: &usize| *item).is_empty());
}
