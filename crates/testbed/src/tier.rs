//! Whether the tests of this tier run.

use std::{io::Write, sync::Once};

use crate::ControlPlane;

/// `required`: a control plane that cannot be started is a failure, not a reason to skip. `later`: another command runs these
/// tests by themselves.
const VARIABLE: &str = "CLUSTER_TESTS";

/// Whether a test that needs a control plane is to run. Where it cannot, one line says why, whatever the number of
/// tests; with `CLUSTER_TESTS=required` the test continues and fails where it starts one.
#[must_use]
pub fn is_wanted() -> bool {
    static SAID: Once = Once::new();
    match std::env::var(VARIABLE).as_deref() {
        Ok("required") => return true,
        Ok("later") => return false,
        _ => {}
    }
    match ControlPlane::available() {
        Ok(()) => true,
        Err(why) => {
            // Straight to stderr: what a passing test prints is captured.
            SAID.call_once(|| drop(writeln!(std::io::stderr(), "cluster tests are skipped: {why}")));
            false
        }
    }
}
