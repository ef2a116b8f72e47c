//! Amounts as Kubernetes writes them: `1500m`, `16Gi`, `2e3`. Pure.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// The longer suffixes first: `Mi` ends in no `M`.
const SUFFIXES: [(&str, f64); 16] = [
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("Pi", 1_125_899_906_842_624.0),
    ("Ei", 1_152_921_504_606_846_976.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
    ("P", 1e15),
    ("E", 1e18),
    ("", 1.0),
];

/// The amount, if it is one.
#[must_use]
pub fn amount(quantity: &Quantity) -> Option<f64> {
    let text = quantity.0.trim();
    let (number, factor) = SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))?;
    let number: f64 = number.parse().ok()?;
    number.is_finite().then_some(number * factor)
}

/// Bytes as people read them.
#[must_use]
pub fn gib(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / 1_073_741_824.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read_with_every_suffix() {
        let read = |text: &str| amount(&Quantity(text.to_owned()));
        assert_eq!(read("1500m"), Some(1.5));
        assert_eq!(read("2"), Some(2.0));
        assert_eq!(read("2e3"), Some(2000.0));
        assert_eq!(read("1Gi"), Some(1_073_741_824.0));
        assert_eq!(read("1G"), Some(1e9));
        assert_eq!(read("12E"), Some(12e18));
        assert_eq!(read("lots"), None);
        assert_eq!(read(""), None);
    }
}
