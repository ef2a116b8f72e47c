//! Label selectors of pods. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

/// The labels are those that a selector asks for. An empty selector matches everything.
#[must_use]
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let wanted = selector.match_labels.iter().flatten();
    let mut rules = selector.match_expressions.iter().flatten();
    wanted.into_iter().all(|(key, value)| labels.get(key) == Some(value))
        && rules.all(|rule| {
            let actual = labels.get(&rule.key);
            let listed = actual.is_some_and(|actual| rule.values.iter().flatten().any(|value| value == actual));
            match rule.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => actual.is_some(),
                "DoesNotExist" => actual.is_none(),
                _ => false,
            }
        })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn all_parts_of_a_selector_must_hold() {
        let labels: BTreeMap<String, String> = [("app".to_owned(), "web".to_owned())].into();
        let holds = |selector: serde_json::Value| matches(&serde_json::from_value(selector).unwrap(), &labels);
        assert!(holds(json!({})));
        assert!(holds(json!({"matchLabels": {"app": "web"}})));
        assert!(!holds(json!({"matchLabels": {"app": "db"}})));
        let rule = |operator: &str, values: &[&str]| {
            holds(json!({"matchExpressions": [{"key": "app", "operator": operator, "values": values}]}))
        };
        assert!(rule("In", &["web"]) && !rule("In", &["db"]));
        assert!(rule("NotIn", &["db"]) && !rule("NotIn", &["web"]));
        assert!(rule("Exists", &[]) && !rule("DoesNotExist", &[]) && !rule("Near", &[]));
    }
}
