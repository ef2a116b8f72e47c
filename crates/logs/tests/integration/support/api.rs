//! `pods/log` as the kubelet serves it: only the current file, `sinceTime` in whole seconds, the first `limitBytes` bytes,
//! the log of the previous start, and an end of a follow without a reason. With rotations, restarts, reboots and outages.

use std::collections::{BTreeMap, BTreeSet};

use logs::{
    Class, Nanos,
    collector::{ContainerState, Observed, PodFacts, Request},
    line::SECOND,
};

use super::pod::{File, Line, Pod, shown};

pub(crate) const TICK: Nanos = SECOND / 20;
/// The kubelet rotates a file that is longer.
const ROTATED: usize = 3000;
pub(crate) const START: Nanos = 1_773_374_229 * SECOND;

struct Follow {
    id: u64,
    pod: usize,
    instance: u32,
    at: usize,
}

pub(crate) enum Reply {
    Bytes(Vec<u8>),
    End,
    Away,
    Refused,
}

pub(crate) struct Cluster {
    pub(crate) now: Nanos,
    random: fastrand::Rng,
    pub(crate) pods: Vec<Pod>,
    follows: Vec<Follow>,
    api_until: Nanos,
    nodes_until: [Nanos; 2],
    shown: Observed,
    shown_before: Observed,
    pub(crate) is_calm: bool,
    written: i64,
}

impl Cluster {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            now: START,
            random: fastrand::Rng::with_seed(seed),
            pods: Vec::new(),
            follows: Vec::new(),
            api_until: 0,
            nodes_until: [0; 2],
            shown: Observed::default(),
            shown_before: Observed::default(),
            is_calm: false,
            written: 0,
        }
    }

    fn chance(&mut self, one_in: u32) -> bool {
        !self.is_calm && self.random.u32(0..one_in) == 0
    }

    pub(crate) fn api_is_up(&self) -> bool {
        self.api_until <= self.now
    }

    /// What a watch shows: the state of a tick ago, and nothing new while the API is away.
    pub(crate) fn observed(&self) -> &Observed {
        &self.shown_before
    }

    /// Notes what a running collector is shown.
    pub(crate) fn note_seen(&mut self) {
        for facts in &self.shown_before.pods {
            let container = &facts.containers[0];
            let readable = container.state != ContainerState::Waiting || container.has_previous;
            let pod = self.pods.iter_mut().find(|pod| pod.name == facts.name).unwrap();
            if readable {
                pod.seen.insert(container.instance);
            }
        }
    }

    /// Time passes. `is_collecting`: what is readable now is shown to a collector.
    pub(crate) fn tick(&mut self, is_collecting: bool) {
        self.now += TICK;
        if self.chance(120) {
            self.api_until = self.now + TICK * i64::from(self.random.u8(1..40));
        }
        if self.chance(25) && self.pods.len() < 8 {
            self.birth();
        }
        for node in 0..2 {
            if self.chance(250) && self.nodes_until[node] <= self.now {
                self.reboot(node);
            }
        }
        for at in 0..self.pods.len() {
            self.live(at);
        }
        self.show(is_collecting);
    }

    fn birth(&mut self) {
        let number = self.pods.len();
        let class = if self.random.u8(0..3) == 0 {
            Class::System
        } else {
            Class::Own
        };
        let is_job = class == Class::Own && self.random.bool();
        let node = self.random.usize(0..2);
        let wait = TICK * i64::from(self.random.u8(0..10));
        self.pods.push(Pod {
            name: format!("pod-{number}"),
            class,
            is_job,
            node,
            created: self.now,
            is_deleting: false,
            removed_at: None,
            is_gone: false,
            state: ContainerState::Waiting,
            starts_at: Some(self.now + wait),
            instance: 0,
            current: File::default(),
            previous: None,
            lines: Vec::new(),
            seen: BTreeSet::new(),
        });
    }

    fn reboot(&mut self, node: usize) {
        let until = self.now + TICK * i64::from(self.random.u8(5..40));
        self.nodes_until[node] = until;
        for pod in self.pods.iter_mut().filter(|pod| pod.node == node && !pod.is_gone) {
            if pod.state == ContainerState::Running {
                pod.state = ContainerState::Ended;
                pod.starts_at = Some(until + TICK);
            }
        }
    }

    fn live(&mut self, at: usize) {
        let now = self.now;
        let (deletes, removes_soon) = (self.chance(150), self.chance(600));
        let (ends, writes, bursts) = (
            self.chance(60),
            !self.is_calm && self.random.u8(0..4) == 0,
            self.chance(60),
        );
        let grace = TICK * i64::from(self.random.u8(0..40));
        let pause = TICK * i64::from(self.random.u8(1..12));
        let rotates = self.random.bool();
        let is_down = self.nodes_until[self.pods[at].node] > now;
        let pod = &mut self.pods[at];
        if pod.is_gone {
            return;
        }
        if removes_soon || pod.removed_at.is_some_and(|moment| moment <= now) {
            pod.is_gone = true;
            return;
        }
        if deletes && !pod.is_deleting {
            (pod.is_deleting, pod.removed_at) = (true, Some(now + grace));
        }
        if is_down {
            return;
        }
        if pod.state != ContainerState::Running && pod.starts_at.is_some_and(|moment| moment <= now) {
            if pod.state == ContainerState::Ended {
                pod.instance += 1;
                pod.previous = Some(std::mem::take(&mut pod.current));
            }
            (pod.state, pod.starts_at) = (ContainerState::Running, None);
        }
        if pod.state != ContainerState::Running {
            return;
        }
        let is_long = pod.current.long_since.is_some_and(|since| now - since > 8 * TICK);
        if is_long && rotates {
            for number in std::mem::take(&mut pod.current).lines {
                pod.lines[number].is_rotated = true;
            }
        }
        if writes || bursts {
            let count = if bursts { 40 } else { self.random.usize(1..4) };
            for _ in 0..count {
                self.write(at);
            }
        }
        let pod = &mut self.pods[at];
        if ends {
            pod.state = ContainerState::Ended;
            pod.starts_at = (!pod.is_job).then_some(now + pause);
        }
    }

    /// One line; now and then one that is written twice within a nanosecond, or earlier than it says.
    fn write(&mut self, at: usize) {
        self.written += 1;
        let disorder = if self.random.u8(0..10) == 0 { SECOND / 10 } else { 0 };
        let is_twice = self.random.u8(0..20) == 0;
        let length = self.random.usize(0..30);
        let time = self.now - disorder + self.written % 1000;
        let pod = &mut self.pods[at];
        let text = format!("{}-line-{} {}", pod.name, self.written, "x".repeat(length));
        for _ in 0..=usize::from(is_twice) {
            let number = pod.lines.len();
            pod.lines.push(Line {
                time,
                text: text.clone(),
                instance: pod.instance,
                shown: 0,
                is_rotated: false,
                longest: 0,
            });
            pod.current.lines.push(number);
            pod.current.bytes += text.len() + 40;
            if pod.current.bytes > ROTATED {
                pod.current.long_since.get_or_insert(self.now);
            }
        }
    }

    fn show(&mut self, is_collecting: bool) {
        let is_up = self.api_is_up();
        for pod in &mut self.pods {
            let is_shown = is_up && is_collecting && !pod.is_gone && self.nodes_until[pod.node] <= self.now;
            let readable: BTreeSet<usize> = if is_shown {
                let previous = pod.previous.iter().flat_map(|file| &file.lines);
                pod.current.lines.iter().chain(previous).copied().collect()
            } else {
                BTreeSet::new()
            };
            for (number, line) in pod.lines.iter_mut().enumerate() {
                line.shown = if readable.contains(&number) {
                    line.shown + TICK
                } else {
                    0
                };
                line.longest = line.longest.max(line.shown);
            }
        }
        if is_up {
            std::mem::swap(&mut self.shown_before, &mut self.shown);
            let nodes = self.nodes_until;
            let old: BTreeMap<_, _> = self
                .shown_before
                .pods
                .iter()
                .map(|pod| (pod.name.clone(), pod.clone()))
                .collect();
            let alive = self.pods.iter().filter(|pod| !pod.is_gone);
            // The kubelet of a node that is down reports nothing.
            let facts = alive.map(|pod| match old.get(&pod.name) {
                Some(old) if nodes[pod.node] > self.now => PodFacts {
                    is_deleting: pod.is_deleting,
                    ..old.clone()
                },
                _ => pod.facts(),
            });
            self.shown = Observed { pods: facts.collect() };
        }
    }

    fn find(&self, request: &Request) -> Option<usize> {
        self.pods.iter().position(|pod| pod.name == request.pod && !pod.is_gone)
    }

    /// The answer to a request that does not follow.
    pub(crate) fn read(&mut self, request: &Request) -> Vec<Reply> {
        if !self.api_is_up() {
            return vec![Reply::Away];
        }
        let Some(at) = self.find(request) else {
            return vec![Reply::Refused];
        };
        let pod = &self.pods[at];
        if self.nodes_until[pod.node] > self.now {
            return vec![Reply::Away];
        }
        let file = if request.previous {
            pod.previous.as_ref()
        } else {
            Some(&pod.current)
        };
        let Some(file) = file.filter(|_| pod.state != ContainerState::Waiting || request.previous) else {
            return vec![Reply::Refused];
        };
        let mut bytes = Vec::new();
        for line in file.lines.iter().map(|number| &pod.lines[*number]) {
            if request.since.is_none_or(|since| line.time >= since) {
                bytes.extend(shown(line));
            }
        }
        if let Some(limit) = request.limit {
            bytes.truncate(usize::try_from(limit).unwrap());
        }
        if self.chance(40) && !bytes.is_empty() {
            bytes.truncate(self.random.usize(0..bytes.len()));
            // What breaks off was not shown.
            self.pods[at].lines.iter_mut().for_each(|line| line.shown = 0);
            return vec![Reply::Bytes(bytes), Reply::Away];
        }
        let half = bytes.split_off(self.random.usize(0..=bytes.len()));
        vec![Reply::Bytes(bytes), Reply::Bytes(half), Reply::End]
    }

    pub(crate) fn follow(&mut self, request: &Request) -> Vec<Reply> {
        let mut plain = self.read(request);
        if matches!(plain.last(), Some(Reply::End)) {
            plain.pop();
            let at = self.find(request).unwrap();
            let pod = &self.pods[at];
            self.follows.push(Follow {
                id: request.id,
                pod: at,
                instance: pod.instance,
                at: pod.current.lines.len(),
            });
        }
        plain
    }

    /// What follows have to say since the last tick.
    pub(crate) fn followed(&mut self) -> Vec<(u64, Reply)> {
        let is_up = self.api_is_up();
        let mut replies = Vec::new();
        let (pods, nodes, now) = (&self.pods, self.nodes_until, self.now);
        self.follows.retain_mut(|follow| {
            let pod = &pods[follow.pod];
            let has_ended = pod.is_gone || pod.instance != follow.instance || pod.state != ContainerState::Running;
            if !is_up || nodes[pod.node] > now {
                replies.push((follow.id, Reply::Away));
                return false;
            }
            if !pod.is_gone && pod.instance == follow.instance {
                let from = follow.at.min(pod.current.lines.len());
                let lines = pod.current.lines[from..].iter().map(|number| &pod.lines[*number]);
                let bytes: Vec<u8> = lines.flat_map(shown).collect();
                follow.at = pod.current.lines.len();
                if !bytes.is_empty() {
                    replies.push((follow.id, Reply::Bytes(bytes)));
                }
            }
            if has_ended {
                replies.push((follow.id, Reply::End));
            }
            !has_ended
        });
        replies
    }

    pub(crate) fn stop(&mut self, id: u64) {
        self.follows.retain(|follow| follow.id != id);
    }

    pub(crate) fn stop_all(&mut self) {
        self.follows.clear();
    }

    pub(crate) fn calm(&mut self) {
        self.is_calm = true;
    }
}
