//! Ages as people read them, in the steps the real server uses.

use jiff::Timestamp;
use serde_json::Value;

/// Time since a timestamp: `5s`, `3m20s`, `7h`, `4d3h` …
pub(crate) fn age(since: &Value, now: Timestamp) -> String {
    let Some(since) = since.as_str().and_then(|text| text.parse::<Timestamp>().ok()) else {
        return "<unknown>".into();
    };
    human(now.as_second() - since.as_second())
}

/// A number of seconds as people read it.
pub(crate) fn human(seconds: i64) -> String {
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 {
            format!("{big}{unit}")
        } else {
            format!("{big}{unit}{small}{small_unit}")
        }
    };
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match seconds {
        ..-1 => "<invalid>".into(),
        -1 => "0s".into(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::human;

    #[rstest]
    #[case(0, "0s")]
    #[case(119, "119s")]
    #[case(120, "2m")]
    #[case(200, "3m20s")]
    #[case(600, "10m")]
    #[case(10_799, "179m")]
    #[case(10_860, "3h1m")]
    #[case(30_000, "8h")]
    #[case(176_400, "2d1h")]
    #[case(864_000, "10d")]
    #[case(-5, "<invalid>")]
    fn ages_read_as_kubectl_shows_them(#[case] seconds: i64, #[case] expected: &str) {
        assert_eq!(human(seconds), expected);
    }
}
