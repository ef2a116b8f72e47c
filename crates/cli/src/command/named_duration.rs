//! `NAME=DURATION` on a command line: which wait, and how long it may take.

use std::time::Duration;

use program::step::Step;

/// Reads it, the name being that of a step of a program.
pub(crate) fn of_step<C>(text: &str, steps: &[Step<C>]) -> Result<(String, Duration), String> {
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
) -> Result<(String, Duration), String> {
    let (name, limit) = text
        .split_once('=')
        .ok_or_else(|| format!("{text:?} is not NAME=DURATION, as in {example}"))?;
    if !is_known(name) {
        let known: Vec<String> = known.map(|name| name.replace('_', "-")).collect();
        return Err(format!("there is no deadline {name:?}; known are {}", known.join(", ")));
    }
    let limit: jiff::SignedDuration = limit
        .parse()
        .map_err(|_| format!("{limit:?} is not a duration, as in 45m or 1h30m"))?;
    match Duration::try_from(limit) {
        Ok(limit) if !limit.is_zero() => Ok((name.to_owned(), limit)),
        _ => Err(format!("the deadline {name:?} must be longer than nothing")),
    }
}
