//! An embedded Kubernetes API: one function from `Request` to `Response` over one store, with three doors.
//!
//! - in process: [`ApiServer::client`] is a [`kube::Client`] without sockets, fit for paused time;
//! - over HTTP: [`ApiServer::serve`] on a loopback listener, for kubectl, other languages' clients, browsers;
//! - directly: [`ApiServer::store`] for oracles that look after every write.
//!
//! The crate knows JSON and Kubernetes conventions and nothing of who uses it. It reads no clock and draws no random
//! number: `now` and a seed come in with [`Config`]. What deviates from a real API server is listed in
//! `docs/embedded-api.md`.

mod admission;
mod body;
mod browser;
mod builtin;
mod builtin_fields;
mod builtin_rules;
mod crd;
mod discovery;
mod door;
mod event_view;
mod faults;
mod history;
mod identity;
mod kind;
mod logs;
mod managed;
mod match_conditions;
mod metadata;
mod openapi;
mod openapi_protobuf;
mod patch;
mod protobuf_body;
mod rbac;
mod request;
mod response;
mod route;
mod schema;
mod selector;
mod server;
mod status;
mod store;
mod table;
mod template;
mod verb;
mod write;

pub use admission::WebhookHandler;
pub use faults::{Fault, FaultPlan, ReadAttempt, ReadFault, WriteAttempt};
pub use history::{Change, ChangeKind, Counters, Observer, Verb, Write};
pub use identity::Identity;
pub use kind::ResourceId;
pub use logs::{ContainerInstance, Logs};
pub use response::Body;
pub use server::{ApiServer, Config, NodeProxy, Now, WeakApiServer};
pub use store::Store;
pub use template::Template;

/// Bodies larger than this are refused with 413, as by a real server.
pub const BODY_LIMIT: usize = serving::Limits::REHEARSAL.body_bytes;
