//! What becomes of an addon. Pure.

use std::time::Duration;

use api::{ProgramWait, annotations::ADDON_DEFAULTS, foreign::harvester::Addon};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::{Value, json};

use program::report::{Look, Waiting};

const DEPLOYED: &str = "AddonDeploySuccessful";
const ON_THE_WAY: [&str; 2] = ["AddonUpdating", "AddonEnabling"];

/// What an addon is to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Change<'a> {
    /// Its version.
    pub(super) version: &'a str,
    /// Its values, when they change.
    pub(super) values: Option<String>,
    /// The values of its manifest, to recognise what users change from now on.
    pub(super) defaults: Option<&'a str>,
}

impl<'a> Change<'a> {
    /// Another version, and nothing else.
    #[must_use]
    pub(super) fn to(version: &'a str) -> Self {
        Self {
            version,
            values: None,
            defaults: None,
        }
    }

    /// The patch; nothing when the addon is so already.
    #[must_use]
    pub(super) fn patch(&self, current: &Addon) -> Option<Value> {
        let mut patch = json!({});
        if current.spec.version.as_deref() != Some(self.version) {
            patch["spec"]["version"] = json!(self.version);
        }
        if let Some(values) = &self.values {
            patch["spec"]["valuesContent"] = json!(values);
        }
        let known = current.annotations().get(ADDON_DEFAULTS).map(String::as_str);
        if let Some(defaults) = self.defaults.filter(|defaults| known != Some(*defaults)) {
            patch["metadata"]["annotations"][ADDON_DEFAULTS] = json!(defaults);
        }
        patch
            .as_object()
            .is_some_and(|patch| !patch.is_empty())
            .then_some(patch)
    }
}

/// Whether to wait for an addon: when it ran before it was changed, or is on its way because an earlier attempt changed
/// it. One that did not run would not run now.
#[must_use]
pub(super) fn wait_for(current: &Addon, is_changed: bool) -> bool {
    let status = current.status.status.as_deref().unwrap_or_default();
    current.spec.enabled == Some(true) && (is_changed && status == DEPLOYED || ON_THE_WAY.contains(&status))
}

/// Whether an addon runs.
fn is_deployed(addon: &Addon) -> bool {
    addon.status.status.as_deref() == Some(DEPLOYED)
}

/// An addon that was changed and is waited for.
#[derive(Clone, Debug)]
pub(super) struct Deployment {
    called: String,
    steady: Duration,
    since: Option<Timestamp>,
}

impl Deployment {
    /// The addon of that name, as users see it; deployed for so long it counts.
    #[must_use]
    pub(super) fn of(called: &str, steady: Duration) -> Self {
        Self {
            called: called.to_owned(),
            steady,
            since: None,
        }
    }

    /// Whether it runs and has done so for a while.
    pub(super) fn look(&mut self, now: Timestamp, addon: Option<&Addon>) -> Look {
        let deployed = addon.is_some_and(is_deployed);
        self.since = deployed.then(|| self.since.unwrap_or(now));
        if (self.since).is_some_and(|since| now.duration_since(since).unsigned_abs() >= self.steady) {
            return Look::Done;
        }
        let status = addon.and_then(|addon| addon.status.status.clone()).unwrap_or_default();
        let lacks = if deployed {
            format!("has been deployed for less than {} seconds", self.steady.as_secs())
        } else {
            format!("is not deployed yet; it says {status}")
        };
        Look::wait(Waiting {
            what: ProgramWait::Addon,
            object: self.called.clone(),
            message: format!("{} {lacks}", self.called),
        })
    }
}

/// What monitoring needs: it must not install its own chart of the same name, and dashboards need labels of nodes.
fn monitoring_needs() -> [(&'static str, &'static str, Value); 2] {
    [
        ("rancherMonitoring", "enabled", json!(false)),
        ("kube-state-metrics", "metricLabelsAllowlist", json!(["nodes=[*]"])),
    ]
}

/// Sets what monitoring needs where users have set nothing.
pub(super) fn monitoring_values(values: &mut Value) {
    for (parent, key, value) in monitoring_needs() {
        let inner = as_map(values).and_then(|values| as_map(values.entry(parent).or_insert(Value::Null)));
        if let Some(present) = inner.map(|inner| inner.entry(key).or_insert(Value::Null))
            && present.is_null()
        {
            *present = value;
        }
    }
}

/// What monitoring needs and does not get, because users have something else where it belongs.
#[must_use]
pub(super) fn monitoring_lacks(values: &Value) -> Vec<String> {
    let fits = |value: Option<&Value>| value.is_none_or(|value| value.is_null() || value.is_object());
    let needs = monitoring_needs().into_iter();
    let lacks = needs.filter(|(parent, ..)| !fits(Some(values)) || !fits(values.get(*parent)));
    lacks.map(|(parent, key, _)| format!("{parent}.{key}")).collect()
}

/// A map; what is empty becomes one. Anything else is the user's, and not for us to replace.
fn as_map(value: &mut Value) -> Option<&mut serde_json::Map<String, Value>> {
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut()
}

/// The event router's image is written out in the values and would stay the old one.
pub(super) fn logging_values(values: &mut Value, router: &str) {
    let image = values.pointer_mut("/eventTailer/workloadOverrides/containers/0/image");
    if let Some(image) = image.filter(|image| !image.is_null()) {
        *image = json!(router);
    }
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn addon(enabled: bool, status: &str) -> Addon {
        let mut addon = Addon::named("a");
        addon.spec.version = Some("1.0.0".into());
        addon.spec.enabled = Some(enabled);
        addon.status.status = Some(status.into());
        addon
    }

    #[rstest]
    #[case(true, DEPLOYED, true, true)]
    #[case(true, DEPLOYED, false, false)]
    #[case(true, "AddonUpdating", false, true)]
    #[case(true, "AddonUpdateFailed", true, false)]
    #[case(false, "AddonDisabled", true, false)]
    fn only_an_addon_that_ran_is_waited_for(
        #[case] enabled: bool,
        #[case] status: &str,
        #[case] changed: bool,
        #[case] expected: bool,
    ) {
        assert_eq!(wait_for(&addon(enabled, status), changed), expected);
    }

    #[test]
    fn an_addon_that_is_as_wanted_is_not_written() {
        let current = addon(true, DEPLOYED);
        let mut change = Change::to("1.0.0");
        assert_eq!(change.patch(&current), None);
        change.version = "1.1.0";
        assert_eq!(change.patch(&current), Some(json!({"spec": {"version": "1.1.0"}})));
    }

    #[test]
    fn monitoring_keeps_what_users_have_set() {
        let mut values = json!({"rancherMonitoring": {"enabled": true}, "prometheus": {"retention": "9d"}});
        monitoring_values(&mut values);
        assert_eq!(values["rancherMonitoring"]["enabled"], true);
        assert_eq!(
            values["kube-state-metrics"]["metricLabelsAllowlist"],
            json!(["nodes=[*]"])
        );
        assert_eq!(values["prometheus"]["retention"], "9d");
        let mut empty = Value::Null;
        monitoring_values(&mut empty);
        assert_eq!(empty["rancherMonitoring"]["enabled"], false);
    }

    #[rstest]
    #[case(json!({"rancherMonitoring": "off"}), &["rancherMonitoring.enabled"])]
    #[case(json!({"rancherMonitoring": true, "kube-state-metrics": [1]}),
        &["rancherMonitoring.enabled", "kube-state-metrics.metricLabelsAllowlist"])]
    #[case(json!(["a list"]), &["rancherMonitoring.enabled", "kube-state-metrics.metricLabelsAllowlist"])]
    #[case(json!("text"), &["rancherMonitoring.enabled", "kube-state-metrics.metricLabelsAllowlist"])]
    #[case(json!({"rancherMonitoring": null}), &[])]
    fn what_users_have_where_a_map_belongs_stays_and_is_named(#[case] values: Value, #[case] lacks: &[&str]) {
        assert_eq!(monitoring_lacks(&values), lacks);
        let mut edited = values.clone();
        monitoring_values(&mut edited);
        for (parent, key, wanted) in monitoring_needs() {
            if lacks.contains(&format!("{parent}.{key}").as_str()) {
                assert_eq!(edited.get(parent), values.get(parent));
            } else {
                assert_eq!(edited[parent][key], wanted);
            }
        }
    }

    #[test]
    fn the_event_router_is_replaced_only_where_it_stands() {
        let mut values = json!({"eventTailer": {"workloadOverrides": {"containers": [{"image": "old", "name": "n"}]}}});
        logging_values(&mut values, "new");
        assert_eq!(
            values["eventTailer"]["workloadOverrides"]["containers"][0],
            json!({"image": "new", "name": "n"})
        );
        let mut other = json!({"eventTailer": {}});
        logging_values(&mut other, "new");
        assert_eq!(other, json!({"eventTailer": {}}));
    }
}
