//! `NAME=DURATION` on a command line: which wait, and how long it may take.

use std::time::Duration;

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
