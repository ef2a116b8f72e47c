//! Lines of several logs in order of time, as `logs` shows them.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    io::{self, BufRead, BufReader},
};

use crate::{
    key::{StreamInfo, StreamKey},
    line::{self, Nanos},
    store::{StreamReader, View, index::Stream},
};

/// Which lines are shown. Nothing set: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only pods of this node.
    pub node: Option<String>,
    /// Only pods of this component.
    pub component: Option<String>,
    /// Only this pod, by its name or by `namespace/name`.
    pub pod: Option<String>,
    /// Only lines since this moment.
    pub since: Option<Nanos>,
}

/// A line, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Which log.
    pub key: StreamKey,
    /// Whose.
    pub info: StreamInfo,
    /// Its timestamp.
    pub time: Nanos,
    /// The line, without its timestamp.
    pub text: String,
}

impl Filter {
    /// It has lines of this log.
    #[must_use]
    pub fn has(&self, key: &StreamKey, info: &StreamInfo) -> bool {
        let is =
            |wanted: &Option<String>, value: Option<&str>| wanted.as_deref().is_none_or(|wanted| value == Some(wanted));
        let key = &key.container;
        is(&self.node, info.node.as_deref())
            && is(&self.component, Some(&info.component))
            && (is(&self.pod, Some(&key.pod)) || is(&self.pod, Some(&key.pod_name())))
    }
}

struct Source<'a> {
    stream: &'a Stream,
    lines: Option<BufReader<StreamReader>>,
    newest: Nanos,
}

/// Iterates over the lines of a view. Lines of one log stay in its order, also where its timestamps are not.
pub struct Merged<'a> {
    view: &'a View,
    sources: Vec<Source<'a>>,
    /// The next line of each log, by time. A log whose beginning was not read yet is here with its first timestamp.
    heap: BinaryHeap<Reverse<(Nanos, usize, Option<String>)>>,
    since: Nanos,
}

impl<'a> Merged<'a> {
    /// The lines that a filter has.
    #[must_use]
    pub fn new(view: &'a View, filter: &Filter) -> Self {
        let streams = view
            .streams()
            .into_iter()
            .filter(|stream| filter.has(&stream.key, &stream.info));
        let sources: Vec<_> = streams
            .map(|stream| Source {
                stream,
                lines: None,
                newest: Nanos::MIN,
            })
            .collect();
        let begins = sources
            .iter()
            .enumerate()
            .map(|(at, source)| Reverse((first(source.stream), at, None)));
        Self {
            view,
            heap: begins.collect(),
            sources,
            since: filter.since.unwrap_or(Nanos::MIN),
        }
    }

    /// Reads the next line of a log into the heap.
    fn advance(&mut self, at: usize) -> io::Result<()> {
        let Some(source) = self.sources.get_mut(at) else {
            return Ok(());
        };
        let stream = source.stream;
        let lines = source
            .lines
            .get_or_insert_with(|| BufReader::new(self.view.read(stream)));
        let mut text = String::new();
        while lines.read_line(&mut text)? > 0 {
            let line = text.trim_end_matches('\n');
            if let Some((time, _)) = line::split(line) {
                source.newest = source.newest.max(time);
                let line = line.to_owned();
                self.heap.push(Reverse((source.newest, at, Some(line))));
                return Ok(());
            }
            text.clear();
        }
        source.lines = None;
        Ok(())
    }
}

/// The first timestamp of a log.
fn first(stream: &Stream) -> Nanos {
    let dropped = stream.dropped.map(|dropped| dropped.from);
    let segment = stream.segments.first().map(|segment| segment.first);
    let tail = (!stream.tail.text.is_empty()).then_some(stream.tail.first);
    dropped
        .into_iter()
        .chain(segment)
        .chain(tail)
        .min()
        .unwrap_or(Nanos::MIN)
}

impl Iterator for Merged<'_> {
    type Item = io::Result<Line>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let Reverse((_, at, line)) = self.heap.pop()?;
            if let Err(error) = self.advance(at) {
                return Some(Err(error));
            }
            let Some(line) = line else { continue };
            let Some((time, text)) = line::split(&line) else {
                continue;
            };
            if time < self.since {
                continue;
            }
            let stream = self.sources.get(at)?.stream;
            return Some(Ok(Line {
                key: stream.key.clone(),
                info: stream.info.clone(),
                time,
                text: text.to_owned(),
            }));
        }
    }
}
