//! Values of addons: YAML that belongs to users. Typed edits on the value; the text around them stays where it can.
//! Pure.

use serde_json::{Map, Value};

use super::text_edit;

/// A YAML text with its value, to be edited.
#[derive(Clone, Debug)]
pub(super) struct Yaml {
    /// The value, as it is to become.
    pub(super) value: Value,
    original: Value,
    text: String,
}

/// Why values cannot be edited.
#[derive(Debug, thiserror::Error)]
#[error("they are not YAML that can be edited: {0}")]
pub(super) struct YamlError(String);

impl Yaml {
    /// Reads a text.
    ///
    /// # Errors
    /// When it is no YAML, or not a set of named values.
    pub(super) fn parse(text: &str) -> Result<Self, YamlError> {
        let says_nothing = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let value: Value = if text.lines().all(says_nothing) {
            Value::Object(Map::new())
        } else {
            serde_saphyr::from_str(text).map_err(|error| YamlError(error.to_string()))?
        };
        match value {
            Value::Object(_) => {}
            other => return Err(YamlError(format!("{other} has no names"))),
        }
        Ok(Self {
            original: value.clone(),
            value,
            text: text.to_owned(),
        })
    }

    /// The text of the edited value: that of before with as little changed as can be. Nothing when nothing was changed.
    #[must_use]
    pub(super) fn text(&self) -> Option<String> {
        if self.value == self.original {
            return None;
        }
        let reads = |text: &String| Self::parse(text).is_ok_and(|yaml| yaml.value == self.value);
        let edited = text_edit::edited(&self.text, &self.original, &self.value).filter(reads);
        edited.or_else(|| serde_saphyr::to_string(&self.value).ok().filter(reads))
    }
}

/// The users' values under a new release's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Merged {
    /// Their text; nothing when they stay as they are.
    pub(super) text: Option<String>,
    /// If one side has a scalar and the other a map: theirs would mean nothing to the
    /// new software, and the release's are taken.
    pub(super) reshaped: Vec<String>,
}

/// Merges the users' values and a new release's defaults.
///
/// What identifies software (images, tags, versions) comes from the release. Of the rest, what users have set stays;
/// with the defaults of before at hand, what was a default then follows the new ones.
///
/// # Errors
/// When one of the texts cannot be read.
pub(super) fn merged(base: Option<&str>, present: &str, defaults: &str) -> Result<Merged, YamlError> {
    let base = base.map(Yaml::parse).transpose()?.map(|yaml| yaml.value);
    let defaults = Yaml::parse(defaults)?.value;
    let mut yaml = Yaml::parse(present)?;
    let mut reshaped = Vec::new();
    yaml.value = merge(
        base.as_ref(),
        &yaml.value,
        &defaults,
        &mut Place::default(),
        &mut reshaped,
    );
    let text = yaml.text();
    Ok(Merged { text, reshaped })
}

/// Where among the values a merge is.
#[derive(Default)]
struct Place {
    path: Vec<String>,
    /// Within something that says which software runs.
    is_software: bool,
}

fn merge(
    base: Option<&Value>,
    present: &Value,
    defaults: &Value,
    place: &mut Place,
    reshaped: &mut Vec<String>,
) -> Value {
    let (Value::Object(mine), Value::Object(new)) = (present, defaults) else {
        let was_default = base == Some(present);
        let is_unset = present.is_null() || defaults.is_null();
        if place.is_software || was_default {
            return defaults.clone();
        }
        if !is_unset && present.is_object() != defaults.is_object() {
            reshaped.push(place.path.join("."));
            return defaults.clone();
        }
        return present.clone();
    };
    let mut result = mine.clone();
    for (key, default) in new {
        let before = base.and_then(|base| base.get(key));
        match mine.get(key) {
            Some(value) => {
                let outer = place.is_software;
                place.is_software |= names_software(key);
                place.path.push(key.clone());
                result.insert(key.clone(), merge(before, value, default, place, reshaped));
                place.path.pop();
                place.is_software = outer;
            }
            // A default that users have removed stays removed.
            None if before.is_some() => {}
            None => drop(result.insert(key.clone(), default.clone())),
        }
    }
    // A default of before that is none any more, and that users left as it was, goes.
    if let Some(Value::Object(before)) = base {
        result.retain(|key, value| new.contains_key(key) || before.get(key) != Some(value));
    }
    Value::Object(result)
}

/// Whether a key says which software runs, rather than how.
fn names_software(key: &str) -> bool {
    matches!(key, "image" | "images" | "tag" | "repository" | "digest" | "version")
        || ["Image", "Tag", "Version"].iter().any(|end| key.ends_with(end))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DEFAULTS: &str =
        "image:\n  repository: rancher/harvester-seeder\n  tag: v1.8.0\nloglevel: info\nfullnameOverride: seeder\n";

    fn text(base: Option<&str>, present: &str, defaults: &str) -> Option<String> {
        merged(base, present, defaults).unwrap().text
    }

    fn value(text: &str) -> Value {
        Yaml::parse(text).unwrap().value
    }

    #[test]
    fn f19_unknown_keys_comments_and_layout_stay() {
        let present = "# our own\nimage:\n    repository: rancher/harvester-seeder\n    tag: v1.7.1   # pinned\n\
            fullnameOverride: seeder\nloglevel: debug\ntolerations:\n- key: \"a: b\"\n  operator: Exists\n";
        let text = text(None, present, DEFAULTS).unwrap();
        assert_eq!(text, present.replace("v1.7.1", "v1.8.0"));
    }

    #[test]
    fn values_that_need_no_change_are_not_written() {
        let present = "loglevel: debug # mine\n";
        assert_eq!(text(None, present, "loglevel: info\n"), None);
        assert_eq!(text(None, DEFAULTS, DEFAULTS), None);
        assert_eq!(text(None, "", ""), None);
    }

    #[test]
    fn with_the_defaults_of_before_only_what_users_changed_stays() {
        let base = "loglevel: warn\nworkers: 2\nold: 1\n";
        let present = "loglevel: warn\nworkers: 5\nold: 1\nmine: yes\n";
        let text = text(Some(base), present, "loglevel: info\nworkers: 3\nnew: 1\n").unwrap();
        assert_eq!(
            value(&text),
            json!({"loglevel": "info", "workers": 5, "new": 1, "mine": value("a: yes")["a"]})
        );
        // What users removed stays removed.
        let text = super::tests::text(Some(base), "workers: 2\n", "loglevel: info\nworkers: 3\n").unwrap();
        assert_eq!(value(&text), json!({"workers": 3}));
    }

    #[test]
    fn the_location_of_a_driver_is_the_users() {
        let defaults = "image:\n  tag: v2\ndriverLocation: https://placeholder/driver.run\n";
        let present = "image:\n  tag: v1\ndriverLocation: http://my.site/$value&driver.run\n";
        let text = text(None, present, defaults).unwrap();
        assert_eq!(text, present.replace("v1", "v2"));
    }

    #[test]
    fn what_is_no_yaml_is_refused_and_so_stays() {
        assert!(merged(None, "{{ template }}", DEFAULTS).is_err());
        assert!(merged(None, "- a\n", DEFAULTS).is_err());
        assert!(text(None, "# nothing\n", DEFAULTS).is_some());
    }

    #[test]
    fn r35_one_value_that_becomes_named_ones_is_the_releases_and_is_reported() {
        let defaults = "resources:\n  limits:\n    cpu: 1\nport: 80\nnodeSelector: null\nlabels: {}\n";
        let present = "resources: small\nport:\n  http: 8080\nnodeSelector:\n  a: b\nlabels: null\n";
        let mut merged = merged(None, present, defaults).unwrap();
        merged.reshaped.sort();
        assert_eq!(merged.reshaped, ["port", "resources"]);
        assert_eq!(
            value(&merged.text.unwrap()),
            json!({"resources": {"limits": {"cpu": 1}}, "port": 80, "nodeSelector": {"a": "b"}, "labels": null})
        );
    }
}
