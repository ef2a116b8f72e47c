//! Which pods a label selector selects. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The selector selects what carries these labels. An empty one selects everything.
pub(super) fn selects(selector: &LabelSelector, labels: Option<&BTreeMap<String, String>>) -> bool {
    let value = |key: &str| labels.and_then(|labels| labels.get(key));
    let equal = selector.match_labels.iter().flatten();
    let mut equal = equal.map(|(key, wanted)| value(key) == Some(wanted));
    let mut expressions = selector.match_expressions.iter().flatten().map(|expression| {
        let found = value(&expression.key);
        let listed = || {
            let values = expression.values.iter().flatten();
            found.is_some_and(|found| values.into_iter().any(|value| value == found))
        };
        match expression.operator.as_str() {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => false,
        }
    });
    equal.all(|matches| matches) && expressions.all(|matches| matches)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn labels_and_expressions_must_all_match() {
        let labels = BTreeMap::from([("app".to_owned(), "db".to_owned())]);
        let selects = |selector: serde_json::Value| {
            selects(
                &serde_json::from_value(selector).unwrap_or_else(|_| LabelSelector::default()),
                Some(&labels),
            )
        };
        assert!(selects(json!({})));
        assert!(selects(json!({"matchLabels": {"app": "db"}})));
        assert!(!selects(json!({"matchLabels": {"app": "web"}})));
        let expression = |operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]});
        assert!(selects(expression("In", &["db", "x"])));
        assert!(!selects(expression("NotIn", &["db"])));
        assert!(selects(expression("Exists", &[])));
        assert!(!selects(expression("DoesNotExist", &[])));
        assert!(!selects(expression("Gt", &["1"])));
    }
}
