//! Errors as users read them.

use std::error::Error;

/// An error with its causes, each once: the outermost alone rarely shows the reason, and some repeat their cause.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if !text.ends_with(&words) {
            text = format!("{text}: {words}");
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("connection refused")]
    struct Cause;

    #[derive(Debug, thiserror::Error)]
    #[error("failed to connect")]
    struct Quiet(#[source] Cause);

    #[derive(Debug, thiserror::Error)]
    #[error("failed to connect: {0}")]
    struct Repeating(#[source] Cause);

    #[test]
    fn every_cause_is_said_once() {
        let expected = "failed to connect: connection refused";
        assert_eq!(with_causes(&Quiet(Cause)), expected);
        assert_eq!(with_causes(&Repeating(Cause)), expected);
        assert_eq!(with_causes(&Cause), "connection refused");
    }
}
