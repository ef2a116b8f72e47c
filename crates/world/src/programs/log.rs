//! What simulated programs log: the lines of the real ones, made by the same code, in the logs of their pods.
//!
//! Real programs log with `tracing`, as lines of JSON on the standard error of their container. Here all programs share a
//! process, so each is polled with a subscriber that writes what it logs to the log of its own pod, at the time of the
//! simulated cluster. Other subscribers of this process get the same events. This knows no program.

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    sync::{Arc, OnceLock},
};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use tracing::{
    Dispatch, Event, Level, Metadata, Subscriber, dispatcher,
    instrument::WithSubscriber,
    level_filters::LevelFilter,
    span::{Attributes, Id, Record},
    subscriber::Interest,
};
use tracing_subscriber::fmt::{
    MakeWriter,
    format::{Format, Json, JsonFields, Writer},
    time::FormatTime,
};

use crate::context::Context;

/// What a container has printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrintedLine<'a> {
    /// Namespace of its pod.
    pub namespace: &'a str,
    /// Name of its pod.
    pub pod: &'a str,
    /// UID of its pod.
    pub uid: &'a str,
    /// The container.
    pub container: &'a str,
    /// How often it was started before.
    pub restart: u32,
    /// When.
    pub at: Timestamp,
    /// The line.
    pub text: &'a str,
}

/// Where what containers print goes.
pub(crate) type LogSink = Box<dyn Fn(&PrintedLine<'_>) + Send + Sync>;

/// The container of a pod that prints: every pod of ours has one.
#[derive(Clone)]
struct Stderr {
    world: Arc<Context>,
    pod: Arc<Pod>,
    /// What else collects the log of this process.
    process: Dispatch,
}

tokio::task_local! {
    static STDERR: Stderr;
}

impl Context {
    /// A container of a pod prints a line.
    pub(crate) fn print(&self, pod: &Pod, text: &str) {
        let Some(sink) = self.log_sink() else { return };
        let first = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let Some(container) = first.map(|container| container.name.as_str()) else {
            return;
        };
        let statuses = pod
            .status
            .iter()
            .flat_map(|status| status.container_statuses.iter().flatten());
        let mut counts = statuses.filter(|status| status.name == container);
        let restart = counts.next().and_then(|status| status.restart_count.try_into().ok());
        let meta = &pod.metadata;
        sink(&PrintedLine {
            namespace: meta.namespace.as_deref().unwrap_or_default(),
            pod: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default(),
            container,
            restart: restart.unwrap_or_default(),
            at: self.clock.now(),
            text,
        });
    }

    /// The last line of a program that fails, as a command prints it.
    pub(crate) fn print_error(&self, pod: &Pod, error: &dyn Error) {
        let mut line = format!("Error: {error}");
        let mut source = error.source();
        while let Some(error) = source {
            line.push_str(&format!(": {error}"));
            source = error.source();
        }
        self.print(pod, &line);
    }
}

/// Runs the program of a pod. What it logs is the log of the pod.
pub(crate) async fn logged<T>(world: &Arc<Context>, pod: &Arc<Pod>, program: impl Future<Output = T>) -> T {
    match stderr(world, pod) {
        None => program.await,
        Some(stderr) => {
            let program = program.with_subscriber(dispatch().clone());
            STDERR.scope(stderr, program).await
        }
    }
}

/// The same for what does not wait.
pub(crate) fn logged_now(world: &Arc<Context>, pod: &Arc<Pod>, program: impl FnOnce()) {
    if let Some(stderr) = stderr(world, pod) {
        STDERR.sync_scope(stderr, || dispatcher::with_default(dispatch(), program));
    }
}

fn stderr(world: &Arc<Context>, pod: &Arc<Pod>) -> Option<Stderr> {
    world.log_sink().map(|_| Stderr {
        world: world.clone(),
        pod: pod.clone(),
        process: dispatcher::get_default(Dispatch::clone),
    })
}

/// The subscriber of all programs.
fn dispatch() -> &'static Dispatch {
    static DISPATCH: OnceLock<Dispatch> = OnceLock::new();
    DISPATCH.get_or_init(|| {
        let lines = tracing_subscriber::fmt()
            .json()
            .with_timer(ClusterTime)
            .with_writer(ToContainer)
            .finish();
        Dispatch::new(ProgramLog { lines })
    })
}

/// Writes lines in the format of the real programs, at their default level.
struct ProgramLog {
    lines: tracing_subscriber::fmt::Subscriber<JsonFields, Format<Json, ClusterTime>, LevelFilter, ToContainer>,
}

fn is_logged(metadata: &Metadata<'_>) -> bool {
    *metadata.level() <= Level::INFO
}

fn process_wants(metadata: &Metadata<'_>) -> bool {
    STDERR
        .try_with(|stderr| stderr.process.enabled(metadata))
        .unwrap_or_default()
}

impl Subscriber for ProgramLog {
    fn register_callsite(&self, _: &'static Metadata<'static>) -> Interest {
        // Where no program runs nothing may be made for its log, so this is asked each time.
        Interest::sometimes()
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(LevelFilter::INFO)
    }

    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // No program has spans, and what they would add to a line is not in the real ones.
        metadata.is_event() && (is_logged(metadata) || process_wants(metadata))
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        if is_logged(event.metadata()) {
            self.lines.event(event);
        }
        // Only a program logs here, and it has a container.
        let _ = STDERR.try_with(|stderr| {
            if stderr.process.enabled(event.metadata()) {
                stderr.process.event(event);
            }
        });
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// The time of the simulated cluster, as the real programs write it.
struct ClusterTime;

impl FormatTime for ClusterTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        STDERR
            .try_with(|stderr| write!(writer, "{:.6}", stderr.world.clock.now()))
            .unwrap_or(Ok(()))
    }
}

/// The standard error of the container whose program logs.
#[derive(Clone, Copy)]
struct ToContainer;

impl io::Write for ToContainer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes);
        // A line is always written by a program.
        let _ = STDERR.try_with(|stderr| stderr.world.print(&stderr.pod, text.trim_end_matches('\n')));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl MakeWriter<'_> for ToContainer {
    type Writer = Self;

    fn make_writer(&self) -> Self {
        *self
    }
}
