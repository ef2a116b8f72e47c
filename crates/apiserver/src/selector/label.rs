//! Label selectors: `a=b`, `a!=b`, `a in (b,c)`, `a notin (b)`, `a`, `!a`, and the `matchLabels` form of objects.

use serde_json::Value;

use crate::{
    metadata::{key_faults, label_value_faults},
    status::{ApiError, ApiResult},
};

#[derive(Debug, Clone, PartialEq, Eq)]
enum Operator {
    In,
    NotIn,
    Exists,
    Absent,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// All requirements must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LabelSelector {
    requirements: Vec<Requirement>,
}

fn unparsable(text: &str, why: &str) -> ApiError {
    ApiError::bad_request(format!("unable to parse requirement: {why} (in \"{text}\")"))
}

/// Splits at commas outside parentheses.
fn clauses(text: &str) -> Vec<&str> {
    let (mut depth, mut start, mut out) = (0_u32, 0, Vec::new());
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                out.push(text[start..index].trim());
                start = index + 1;
            }
            _ => {}
        }
    }
    out.push(text[start..].trim());
    out
}

impl LabelSelector {
    pub(crate) fn parse(text: &str) -> ApiResult<Self> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let requirements: ApiResult<Vec<Requirement>> = clauses(text).into_iter().map(Requirement::parse).collect();
        Ok(Self {
            requirements: requirements?,
        })
    }

    /// From `matchLabels` and `matchExpressions`. Null selects nothing, an empty object everything.
    pub(crate) fn from_object(selector: &Value) -> Option<Self> {
        let selector = selector.as_object()?;
        let mut requirements = Vec::new();
        for (key, value) in selector
            .get("matchLabels")
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            let values = vec![value.as_str().unwrap_or_default().to_owned()];
            requirements.push(Requirement {
                key: key.clone(),
                operator: Operator::In,
                values,
            });
        }
        for expression in selector
            .get("matchExpressions")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
        {
            let operator = match expression["operator"].as_str()? {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::Absent,
                _ => return None,
            };
            let values = expression["values"].as_array().into_iter().flatten();
            let values = values.filter_map(Value::as_str).map(str::to_owned).collect();
            requirements.push(Requirement {
                key: expression["key"].as_str()?.to_owned(),
                operator,
                values,
            });
        }
        Some(Self { requirements })
    }

    pub(crate) fn matches(&self, labels: &Value) -> bool {
        self.requirements.iter().all(|requirement| {
            let found = labels.get(&requirement.key).and_then(Value::as_str);
            let listed = |value: &str| requirement.values.iter().any(|wanted| wanted == value);
            match requirement.operator {
                Operator::In => found.is_some_and(listed),
                Operator::NotIn => !found.is_some_and(listed),
                Operator::Exists => found.is_some(),
                Operator::Absent => found.is_none(),
            }
        })
    }
}

impl Requirement {
    fn parse(clause: &str) -> ApiResult<Self> {
        let made = |key: &str, operator: Operator, values: Vec<String>| {
            let key = key.trim();
            if let Some(fault) = key_faults(key).into_iter().next() {
                return Err(ApiError::bad_request(format!(
                    "unable to parse requirement: <nil>: Invalid value: \"{key}\": {fault}"
                )));
            }
            for value in &values {
                if let Some(fault) = label_value_faults(value).into_iter().next() {
                    return Err(ApiError::bad_request(format!(
                        "unable to parse requirement: values[0][{key}]: Invalid value: \"{value}\": {fault}"
                    )));
                }
            }
            Ok(Self {
                key: key.to_owned(),
                operator,
                values,
            })
        };
        if let Some((left, right)) = clause.split_once('(') {
            let Some(inner) = right.trim_end().strip_suffix(')') else {
                return Err(unparsable(clause, "found '', expected: ',' or ')'"));
            };
            let values = inner.split(',').map(|value| value.trim().to_owned()).collect();
            let mut words = left.split_whitespace();
            return match (words.next(), words.next(), words.next()) {
                (Some(key), Some("in"), None) => made(key, Operator::In, values),
                (Some(key), Some("notin"), None) => made(key, Operator::NotIn, values),
                _ => Err(unparsable(clause, "expected: in, notin, =, ==, !=, gt, lt")),
            };
        }
        let one = |value: &str| vec![value.trim().to_owned()];
        if let Some((key, value)) = clause.split_once("!=") {
            return made(key, Operator::NotIn, one(value));
        }
        if let Some((key, value)) = clause.split_once("==") {
            return made(key, Operator::In, one(value));
        }
        if let Some((key, value)) = clause.split_once('=') {
            return made(key, Operator::In, one(value));
        }
        if let Some(key) = clause.strip_prefix('!') {
            return made(key, Operator::Absent, Vec::new());
        }
        if clause.contains(char::is_whitespace) {
            return Err(unparsable(clause, "expected: in, notin, =, ==, !=, gt, lt"));
        }
        made(clause, Operator::Exists, Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::LabelSelector;

    #[rstest]
    #[case("a=1", true)]
    #[case("a==1", true)]
    #[case("a!=1", false)]
    #[case("missing!=1", true)]
    #[case("a in (1,2)", true)]
    #[case("a in (2, 3)", false)]
    #[case("a notin (2)", true)]
    #[case("missing notin (2)", true)]
    #[case("a", true)]
    #[case("!a", false)]
    #[case("!missing", true)]
    #[case("a in (1,2),b=x", true)]
    #[case("a in (1,2),b=y", false)]
    #[case("empty=", true)]
    fn a_selector_selects_by_labels(#[case] text: &str, #[case] expected: bool) {
        let labels = json!({"a": "1", "b": "x", "empty": ""});
        assert_eq!(LabelSelector::parse(text).unwrap().matches(&labels), expected);
    }

    #[rstest]
    #[case("a in (1")]
    #[case("a b c")]
    #[case("a=b c")]
    #[case("=x")]
    #[case("a,,b")]
    fn nonsense_is_refused(#[case] text: &str) {
        assert_eq!(LabelSelector::parse(text).unwrap_err().code, 400);
    }
}
