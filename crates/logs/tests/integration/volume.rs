//! The volume of logs: full, gone, or cut off in the middle of any write.

use std::{io, io::Read as _, sync::Arc};

use crate::support::disk::SimulatedDisk;
use logs::{
    Class, Limits, Store, StreamInfo, StreamKey,
    collector::Cursor,
    key::ContainerKey,
    line::SECOND,
    store::{Append, Health, View, read_only},
};

fn limits() -> Limits {
    Limits {
        total: 40_000,
        per_pod: 20_000,
        journal: 3000,
        segment: 1000,
        memory: 4000,
    }
}

fn append(pod: &str, class: Class, number: u64) -> Append {
    // Random text does not get smaller.
    let mut random = fastrand::Rng::with_seed(number);
    let noise: String = std::iter::repeat_with(|| random.alphanumeric()).take(300).collect();
    let time = i64::try_from(number).unwrap() * SECOND;
    let text = format!("{} {pod} {number} {noise}\n", logs::line::timestamp(time));
    Append {
        key: StreamKey {
            container: ContainerKey::new("ns", pod, pod, "c").unwrap(),
            instance: 0,
        },
        info: StreamInfo {
            class,
            component: "test".to_owned(),
            node: None,
        },
        cursor: Cursor {
            taken: number,
            ..Cursor::default()
        },
        text,
        lines: 1,
        first: time,
        last: time,
        gaps: Vec::new(),
    }
}

/// The numbers of the lines of a pod.
fn numbers(view: &View, pod: &str) -> Vec<u64> {
    let streams = view.streams();
    let Some(stream) = streams.iter().find(|stream| stream.key.container.pod == pod) else {
        return Vec::new();
    };
    let mut text = String::new();
    view.read(stream).read_to_string(&mut text).unwrap();
    let lines = text.lines().filter(|line| !line.contains(" --- "));
    lines
        .map(|line| line.split(' ').nth(2).unwrap().parse().unwrap())
        .collect()
}

#[test]
fn after_a_crash_at_any_write_lines_and_positions_agree() {
    for crash in 0..400 {
        let disk = Arc::new(SimulatedDisk::new(u64::from(crash)));
        disk.crash_after(crash);
        let mut store = Store::open(Arc::clone(&disk) as _, limits(), 0).unwrap();
        let mut committed = 0;
        for number in 1..=60 {
            store.append(append("a", Class::Own, number));
            store.append(append("b", Class::System, number));
            if store.commit(SECOND).is_ok() {
                committed = number;
            }
        }
        let has_crashed = disk.has_crashed();
        disk.restart();
        let store = Store::open(Arc::clone(&disk) as _, limits(), SECOND).unwrap();
        let known = store.known();
        for pod in ["a", "b"] {
            let numbers = numbers(&store.view(), pod);
            let position = known.values().find(|_| true).map_or(0, |(_, cursor)| cursor.taken);
            assert_eq!(
                numbers,
                (1..=position).collect::<Vec<_>>(),
                "{pod}, crash at write {crash}"
            );
            assert!(
                position >= committed,
                "{pod}: {position} of {committed} at write {crash}"
            );
        }
        assert!(has_crashed || crash > 100, "the case has {} writes", disk.writes());
    }
}

#[test]
fn when_space_is_short_the_oldest_of_the_system_goes_first_and_the_index_says_so() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let mut store = Store::open(Arc::clone(&disk) as _, limits(), 0).unwrap();
    for number in 1..=40 {
        store.append(append("own", Class::Own, number));
        store.commit(SECOND).unwrap();
    }
    for number in 41..=400 {
        store.append(append("system-1", Class::System, number));
        store.append(append("system-2", Class::System, number));
        store.commit(SECOND).unwrap();
        assert!(disk.size() <= limits().total, "{} bytes", disk.size());
    }
    let view = store.view();
    assert_eq!(
        numbers(&view, "own"),
        (1..=40).collect::<Vec<_>>(),
        "nothing of the upgrade goes"
    );
    let system = numbers(&view, "system-1");
    assert_eq!(system.last(), Some(&400), "the newest stay");
    assert!(system.is_sorted() && system[0] > 41, "{system:?}");
    let stream = view
        .streams()
        .into_iter()
        .find(|stream| stream.key.container.pod == "system-1")
        .unwrap();
    let dropped = stream.dropped.unwrap();
    assert_eq!(dropped.lines + system.len() as u64, 360);
    assert_eq!(dropped.from, 41 * SECOND);
    let mut text = String::new();
    view.read(stream).read_to_string(&mut text).unwrap();
    assert!(
        text.contains("--- dropped: ") && text.contains("because the space for logs was full"),
        "{text}"
    );
}

#[test]
fn a_pod_has_its_own_quota() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let mut store = Store::open(disk, limits(), 0).unwrap();
    store.append(append("quiet", Class::Own, 1));
    for number in 1..=200 {
        store.append(append("loud", Class::Own, number));
        store.commit(SECOND).unwrap();
    }
    let stored: u64 = store
        .streams()
        .filter(|stream| stream.key.container.pod == "loud")
        .map(|s| s.stored())
        .sum();
    assert!(stored <= limits().per_pod, "{stored}");
    assert_eq!(numbers(&store.view(), "quiet"), [1]);
}

#[test]
fn a_volume_that_is_full_is_shown_and_nothing_is_lost_when_it_has_room_again() {
    for error in [
        io::ErrorKind::StorageFull,
        io::ErrorKind::ReadOnlyFilesystem,
        io::ErrorKind::Other,
    ] {
        let disk = Arc::new(SimulatedDisk::new(1));
        let mut store = Store::open(Arc::clone(&disk) as _, limits(), 0).unwrap();
        store.append(append("a", Class::Own, 1));
        store.commit(SECOND).unwrap();
        disk.fail_with(Some(error));
        let mut number = 1;
        while store.has_room() {
            number += 1;
            store.append(append("a", Class::Own, number));
            assert!(store.commit(SECOND).is_err());
            assert!(number < 100, "memory is bounded");
        }
        assert!(
            matches!(store.health(), Health::Failing { since: SECOND, .. }),
            "{:?}",
            store.health()
        );
        disk.fail_with(None);
        store.commit(2 * SECOND).unwrap();
        assert_eq!(store.health(), &Health::Good);
        assert_eq!(numbers(&store.view(), "a"), (1..=number).collect::<Vec<_>>());
        drop(store);
        let view = read_only(disk).unwrap();
        assert_eq!(numbers(&view, "a"), (1..=number).collect::<Vec<_>>());
    }
}

#[test]
fn a_volume_that_is_smaller_than_the_quota_keeps_the_newest() {
    let disk = Arc::new(SimulatedDisk::new(1));
    disk.set_capacity(Some(25_000));
    let mut store = Store::open(Arc::clone(&disk) as _, limits(), 0).unwrap();
    for number in 1..=300 {
        store.append(append("system", Class::System, number));
        let _ = store.commit(SECOND);
    }
    store.commit(SECOND).unwrap();
    let numbers = numbers(&store.view(), "system");
    assert_eq!(numbers.last(), Some(&300));
    assert!(numbers.is_sorted() && numbers.len() > 10, "{numbers:?}");
}

#[test]
fn a_segment_that_a_crash_has_damaged_is_read_from_the_journal() {
    let disk = Arc::new(SimulatedDisk::new(1));
    let long = Limits {
        journal: 100_000,
        total: 1_000_000,
        ..limits()
    };
    let mut store = Store::open(Arc::clone(&disk) as _, long, 0).unwrap();
    for number in 1..=40 {
        store.append(append("a", Class::Own, number));
        store.commit(SECOND).unwrap();
    }
    drop(store);
    disk.zero("segment.");
    let store = Store::open(disk, long, SECOND).unwrap();
    assert_eq!(numbers(&store.view(), "a"), (1..=40).collect::<Vec<_>>());
}
