//! Suspends Rancher's agent of a node, without a visible effect outside the host.

use node::host::system_agent::SUSPEND_STEPS;
use program::{Result, report::Reporter};

use super::{
    Call,
    walk::{Line, UNSEEN, walk},
};

pub(super) const LINES: &[Line] = &[("suspend-agent", UNSEEN)];

pub(super) async fn run(call: &Call, report: &Reporter) -> Result<()> {
    walk(call, SUSPEND_STEPS, &[LINES], report).await
}
