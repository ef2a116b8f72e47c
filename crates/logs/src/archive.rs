//! All logs of an upgrade as one zip file, written to any stream: no space on the volume, and memory for one block.

use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;
use zip::{CompressionMethod, ZipWriter, write::SimpleFileOptions};

use crate::{
    key::StreamKey,
    line,
    store::{
        View,
        index::{Dropped, Outage, Stream},
    },
};

/// Why an archive could not be written.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// A log cannot be read, or the other side of the stream is gone.
    #[error("failed to write the archive of logs")]
    Io(#[from] io::Error),
    /// The format refuses something.
    #[error("failed to write the archive of logs")]
    Zip(#[from] zip::result::ZipError),
    /// The index cannot be written.
    #[error("failed to write the index of the archive of logs")]
    Index(#[from] serde_json::Error),
}

/// An archive to be written.
pub struct Archive {
    view: View,
    made: Timestamp,
    entries: Vec<(String, Vec<u8>)>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Contents<'a> {
    made: Timestamp,
    logs: Vec<Log<'a>>,
    outages: Vec<Span<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Log<'a> {
    path: String,
    component: &'a str,
    class: crate::key::Class,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<&'a str>,
    uid: &'a str,
    instance: u32,
    lines: u64,
    bytes: u64,
    is_complete: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gaps: Vec<Missing<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dropped: Option<Removed>,
}

#[derive(Serialize)]
struct Missing<'a> {
    at: Timestamp,
    what: &'a str,
}

#[derive(Serialize)]
struct Removed {
    lines: u64,
    bytes: u64,
    from: Timestamp,
    to: Timestamp,
}

#[derive(Serialize)]
struct Span<'a> {
    from: Timestamp,
    to: Timestamp,
    what: &'a str,
}

impl Archive {
    /// An archive of the logs as they are in the view.
    #[must_use]
    pub fn new(view: View, made: Timestamp) -> Self {
        Self {
            view,
            made,
            entries: Vec::new(),
        }
    }

    /// Adds a file: the plan, events, a timeline. A path that leaves the archive is not added.
    #[must_use]
    pub fn with(mut self, path: &str, content: Vec<u8>) -> Self {
        let is_inside = path
            .split('/')
            .all(|part| !part.is_empty() && part != "." && part != "..");
        if is_inside && !path.contains('\\') {
            self.entries.push((path.to_owned(), content));
        }
        self
    }

    /// Writes it. The writer need not seek.
    ///
    /// # Errors
    /// A log cannot be read, or the writer fails.
    pub fn write<W: Write>(&self, to: W) -> Result<W, ArchiveError> {
        let mut zip = ZipWriter::new_stream(to);
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(1))
            .unix_permissions(0o644)
            .large_file(true);
        for (path, content) in &self.entries {
            zip.start_file(path.as_str(), options)?;
            zip.write_all(content)?;
        }
        let mut logs = Vec::new();
        for (path, stream) in paths(self.view.streams()) {
            zip.start_file(path.as_str(), options)?;
            io::copy(&mut self.view.read(stream), &mut zip)?;
            logs.push(log(path, stream));
        }
        let outages = self.view.outages().iter().map(span).collect();
        let contents = Contents {
            made: self.made,
            logs,
            outages,
        };
        zip.start_file("index.json", options)?;
        serde_json::to_writer_pretty(&mut zip, &contents)?;
        Ok(zip.finish()?.into_inner())
    }
}

/// Where each log is. The newest start of a container has the plain name, as users look for it; a pod that was created again
/// with the same name has the beginning of its UID in its folder.
#[must_use]
pub fn paths<'a>(streams: Vec<&'a Stream>) -> Vec<(String, &'a Stream)> {
    let is_same_pod = |a: &StreamKey, b: &StreamKey| {
        a.container.namespace == b.container.namespace && a.container.pod == b.container.pod
    };
    let all: Vec<&'a Stream> = streams;
    let path = |stream: &'a Stream| {
        let key = &stream.key;
        let others = all.iter().filter(|other| is_same_pod(&other.key, key));
        let is_twice = others.clone().any(|other| other.key.container.uid != key.container.uid);
        let newest = others
            .filter(|other| other.key.container == key.container)
            .map(|other| other.key.instance)
            .max();
        let folder = if is_twice {
            let uid: String = key.container.uid.chars().take(8).collect();
            format!("{}_{uid}", key.container.pod)
        } else {
            key.container.pod.clone()
        };
        let back = newest.unwrap_or(key.instance) - key.instance;
        let end = if back == 0 {
            String::new()
        } else {
            format!(".previous.{back}")
        };
        let container = &key.container.container;
        format!("logs/{}/{folder}/{container}.log{end}", key.container.namespace)
    };
    all.iter().map(|stream| (path(stream), *stream)).collect()
}

fn log(path: String, stream: &Stream) -> Log<'_> {
    Log {
        path,
        component: &stream.info.component,
        class: stream.info.class,
        node: stream.info.node.as_deref(),
        uid: &stream.key.container.uid,
        instance: stream.key.instance,
        lines: stream.lines(),
        bytes: stream.bytes(),
        is_complete: stream.cursor.as_ref().is_some_and(|cursor| cursor.ended),
        gaps: stream
            .gaps
            .iter()
            .map(|gap| Missing {
                at: line::timestamp(gap.at),
                what: &gap.what,
            })
            .collect(),
        dropped: stream.dropped.map(removed),
    }
}

fn removed(dropped: Dropped) -> Removed {
    Removed {
        lines: dropped.lines,
        bytes: dropped.bytes,
        from: line::timestamp(dropped.from),
        to: line::timestamp(dropped.to),
    }
}

fn span(outage: &Outage) -> Span<'_> {
    Span {
        from: line::timestamp(outage.from),
        to: line::timestamp(outage.to),
        what: &outage.what,
    }
}
