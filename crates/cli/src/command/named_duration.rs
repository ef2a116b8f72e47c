//! `NAME=DURATION` on a command line: which wait, and how long it may take.

use std::time::Duration;

use program::step::Step;

/// Why it cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NamedDurationError {
    /// It has another form.
    #[error("{given:?} is not NAME=DURATION, as in {example}")]
    Form { given: String, example: String },
    /// There is no such wait.
    #[error("there is no deadline {name:?}; known are {known}")]
    Unknown { name: String, known: String },
    /// What stands behind the name is no duration.
    #[error("{0:?} is not a duration, as in 45m or 1h30m")]
    Duration(String),
    /// Nothing can be waited for.
    #[error("the deadline {0:?} must be longer than nothing")]
    Zero(String),
}

/// What was given on the command line.
pub(crate) type NamedDuration = Result<(String, Duration), NamedDurationError>;

/// Reads it, the name being that of a step of a program.
pub(crate) fn of_step<C>(text: &str, steps: &[Step<C>]) -> NamedDuration {
    let names = || steps.iter().map(|step| step.name);
    let example = names().next().map(|name| format!("{name}=20m")).unwrap_or_default();
    parse(text, &example, |name| names().any(|known| known == name), names())
}

/// Reads it. `is_known` says whether there is such a name; `known` are all of them, and `example` is one.
pub(crate) fn parse(
    text: &str,
    example: &str,
    is_known: impl Fn(&str) -> bool,
    known: impl Iterator<Item = &'static str>,
) -> NamedDuration {
    let (name, limit) = text.split_once('=').ok_or_else(|| NamedDurationError::Form {
        given: text.to_owned(),
        example: example.to_owned(),
    })?;
    if !is_known(name) {
        let known: Vec<String> = known.map(|name| name.replace('_', "-")).collect();
        return Err(NamedDurationError::Unknown {
            name: name.to_owned(),
            known: known.join(", "),
        });
    }
    let limit: jiff::SignedDuration = limit
        .parse()
        .map_err(|_| NamedDurationError::Duration(limit.to_owned()))?;
    match Duration::try_from(limit) {
        Ok(limit) if !limit.is_zero() => Ok((name.to_owned(), limit)),
        _ => Err(NamedDurationError::Zero(name.to_owned())),
    }
}
