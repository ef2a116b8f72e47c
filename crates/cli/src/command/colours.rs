//! Colours only for terminals, and not where `NO_COLOR` is set (no-color.org).

use std::io::{self, IsTerminal};

use view::style::Style;

/// How text on standard output is shown.
pub(super) fn style() -> Style {
    Style {
        colours: io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty()),
    }
}
