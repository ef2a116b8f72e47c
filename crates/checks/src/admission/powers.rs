//! What on a plan chooses the programs that run as root, or leaves out what protects the cluster: each needs a permission
//! in addition to that of creating or changing plans, `update` on `upgradeplans/<subresource>`.

use std::collections::BTreeSet;

use api::{
    CERTIFICATE_DAYS, UpgradePlan, annotations,
    overrides::{MOST_REMEMBERED, Override},
    quoted::{LONGEST_NAME, plain, quoted},
};
use jiff::Timestamp;

use crate::{FieldError, NoAnswer};

/// A permission of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Power {
    /// Choosing the image that the upgrade's workloads run, and whether one that needs none runs with privileges.
    Image,
    /// Leaving out checks.
    SkipChecks,
}

impl Power {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Image, Self::SkipChecks];

    /// The subresource of UpgradePlans that represents it in roles. A user who may `update` it has the permission.
    #[must_use]
    pub const fn subresource(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::SkipChecks => "skip-checks",
        }
    }
}

/// The verb that is checked on the subresource.
pub const VERB: &str = "update";

/// A field or annotation that needs a power.
struct Guarded {
    power: Power,
    /// Where it is.
    field: &'static str,
    /// It may not be changed once the plan is there. What an administrator may need during an upgrade, or for a retry
    /// of a plan that failed, may: each such use needs the permission again, and is reported.
    fixed: bool,
    /// What it says, if it says something.
    value: fn(&UpgradePlan) -> Option<String>,
}

const GUARDED: [Guarded; 11] = [
    Guarded {
        power: Power::Image,
        field: "metadata.annotations[management.harvesterhci.io/upgrade-toolkit-image]",
        fixed: true,
        value: |plan| said(plan, annotations::UPGRADE_TOOLKIT_IMAGE),
    },
    Guarded {
        power: Power::Image,
        field: "spec.upgrade",
        fixed: true,
        value: |plan| plan.spec.upgrade.clone().filter(|tag| !tag.is_empty()),
    },
    // nginx runs as root in a privileged container, and has the kernel of the node mount the ISO.
    Guarded {
        power: Power::Image,
        field: "metadata.annotations[management.harvesterhci.io/repo-server]",
        fixed: true,
        value: |plan| said(plan, annotations::REPO_SERVER).filter(|name| name == "nginx"),
    },
    Guarded {
        power: Power::SkipChecks,
        field: "metadata.annotations[management.harvesterhci.io/skip-garbage-collection-threshold-check]",
        fixed: false,
        value: |plan| {
            let skips = plan.skips_disk_space() == Some(true);
            said(plan, annotations::SKIP_GC_THRESHOLD_CHECK).filter(|_| skips)
        },
    },
    Guarded {
        power: Power::SkipChecks,
        field: "metadata.annotations[management.harvesterhci.io/min-certs-expiration-in-day]",
        fixed: false,
        value: |plan| {
            let weaker = plan.certificate_days().is_some_and(|days| days < CERTIFICATE_DAYS);
            said(plan, annotations::MIN_CERTS_EXPIRATION_IN_DAY).filter(|_| weaker)
        },
    },
    Guarded {
        power: Power::SkipChecks,
        field: "metadata.annotations[management.harvesterhci.io/skip-webhook]",
        fixed: true,
        value: |plan| switched_on(plan, annotations::SKIP_WEBHOOK),
    },
    Guarded {
        power: Power::SkipChecks,
        field: "metadata.annotations[management.harvesterhci.io/skip-data-checks]",
        fixed: true,
        value: |plan| switched_on(plan, annotations::SKIP_DATA_CHECKS),
    },
    Guarded {
        power: Power::SkipChecks,
        field: "metadata.annotations[harvesterhci.io/skip-version-check]",
        fixed: false,
        value: |plan| switched_on(plan, annotations::SKIP_VERSION_CHECK),
    },
    Guarded {
        power: Power::SkipChecks,
        field: "spec.force",
        fixed: false,
        value: |plan| plan.spec.force.filter(|force| *force).map(|_| "true".to_owned()),
    },
    Guarded {
        power: Power::SkipChecks,
        field: "metadata.annotations[management.harvesterhci.io/skip-single-replica-detached-vol]",
        fixed: false,
        value: |plan| switched_on(plan, annotations::SKIP_SINGLE_REPLICA_DETACHED_VOL),
    },
    Guarded {
        power: Power::SkipChecks,
        field: "metadata.annotations[management.harvesterhci.io/skip-volumes]",
        fixed: false,
        value: |plan| said(plan, annotations::SKIP_VOLUMES),
    },
];

fn said(plan: &UpgradePlan, key: &str) -> Option<String> {
    plan.annotation(key)
        .filter(|value| !value.is_empty())
        .map(str::to_owned)
}

fn switched_on(plan: &UpgradePlan, key: &str) -> Option<String> {
    said(plan, key).filter(|value| value == "true")
}

/// A use of a power: which one, and where on the plan.
pub type Use = (Power, &'static str);

/// What a plan uses that it did not use before; `old` is the plan as it was, if it was.
#[must_use]
pub fn uses(old: Option<&UpgradePlan>, new: &UpgradePlan) -> Vec<Use> {
    let used = used(old, new).into_iter();
    used.map(|(guarded, _)| (guarded.power, guarded.field)).collect()
}

/// The same with the values.
fn used(old: Option<&UpgradePlan>, new: &UpgradePlan) -> Vec<(&'static Guarded, String)> {
    let new_ones = GUARDED.iter().filter_map(|guarded| {
        let now = (guarded.value)(new)?;
        (Some(&now) != old.and_then(guarded.value).as_ref()).then_some((guarded, now))
    });
    new_ones.collect()
}

/// The user, and their permissions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asker {
    /// The name that the API server knows them by.
    pub name: String,
    /// The permissions that the cluster's authorizer grants; or why it could not be queried.
    pub powers: Result<BTreeSet<Power>, NoAnswer>,
}

/// Permissions that the user who creates or changes a plan lacks.
#[must_use]
pub fn refused(old: Option<&UpgradePlan>, new: &UpgradePlan, asker: &Asker) -> Vec<FieldError> {
    let mut errors: Vec<FieldError> = match old {
        Some(old) => changed(old, new),
        None => Vec::new(),
    };
    for (power, field) in uses(old, new) {
        let subresource = power.subresource();
        let needed = format!(
            "permission to {VERB} upgradeplans/{subresource} in API group {}",
            api::GROUP
        );
        match &asker.powers {
            Ok(powers) if powers.contains(&power) => {}
            Ok(_) => errors.push(FieldError::forbidden(
                field,
                format!(
                    "user {} may not use it: it needs {needed}; ask an administrator of the cluster for it, or leave it out",
                    asker.name
                ),
            )),
            Err(why) => errors.push(FieldError::forbidden(
                field,
                format!("it needs {needed}, and the manager could not check with the API server whether you have it ({why}); try again"),
            )),
        }
    }
    errors
}

/// The most characters of a value that are remembered.
const LONGEST_VALUE: usize = 100;

/// What [`annotations::OVERRIDES`] says when a plan is made or changed: what was used before, and what is used now and by
/// whom. No other client writes it.
#[must_use]
pub fn noted(old: Option<&UpgradePlan>, new: &UpgradePlan, by: &str, at: Timestamp) -> Option<String> {
    let used = used(old, new).into_iter();
    let what: Vec<String> = used
        .map(|(guarded, value)| format!("{}={}", guarded.field, quoted(&plain(&value, LONGEST_VALUE))))
        .collect();
    if what.is_empty() {
        return old.and_then(|old| old.annotation(annotations::OVERRIDES).map(str::to_owned));
    }
    let by = plain(by, LONGEST_NAME);
    let mut all = old.map(Override::all).unwrap_or_default();
    all.push(Override { by, what, at });
    let last = all.split_off(all.len().saturating_sub(MOST_REMEMBERED));
    serde_json::to_string(&last).ok()
}

/// What may not be changed and is.
fn changed(old: &UpgradePlan, new: &UpgradePlan) -> Vec<FieldError> {
    let changed = GUARDED
        .iter()
        .filter(|guarded| guarded.fixed && (guarded.value)(old) != (guarded.value)(new));
    changed
        .map(|guarded| {
            let why = "it is immutable after creation; delete the plan and create another one";
            FieldError::forbidden(guarded.field, why)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(annotations: &[(&str, &str)]) -> UpgradePlan {
        let mut plan = UpgradePlan::new("up", Default::default());
        let annotations = annotations.iter().map(|(key, value)| ((*key).into(), (*value).into()));
        plan.metadata.annotations = Some(annotations.collect());
        plan
    }

    fn with(powers: &[Power]) -> Asker {
        Asker {
            name: "alice".into(),
            powers: Ok(powers.iter().copied().collect()),
        }
    }

    #[test]
    fn s02_choosing_an_image_needs_a_permission_of_its_own() {
        let evil = plan(&[(annotations::UPGRADE_TOOLKIT_IMAGE, "evil.test/pwn")]);
        let errors = refused(None, &evil, &with(&[Power::SkipChecks]));
        assert_eq!(errors.len(), 1);
        let text = errors[0].to_string();
        assert!(text.contains("upgradeplans/image") && text.contains("alice"), "{text}");
        assert!(refused(None, &evil, &with(&[Power::Image])).is_empty());
        let mut tagged = plan(&[]);
        tagged.spec.upgrade = Some("dev".into());
        assert_eq!(refused(None, &tagged, &with(&[])).len(), 1);
    }

    #[test]
    fn s02_the_image_of_a_plan_is_fixed_for_every_client() {
        let (before, after) = (plan(&[]), plan(&[(annotations::UPGRADE_TOOLKIT_IMAGE, "me/mine")]));
        let errors = refused(Some(&before), &after, &with(&Power::ALL));
        assert!(errors[0].to_string().contains("immutable"), "{}", errors[0]);
        assert!(!refused(Some(&after), &before, &with(&Power::ALL)).is_empty());
        assert!(
            refused(Some(&after), &after, &with(&[])).is_empty(),
            "existing values block no update"
        );
    }

    #[test]
    fn s11_leaving_checks_out_needs_a_permission_of_its_own() {
        for key in [
            annotations::SKIP_WEBHOOK,
            annotations::SKIP_DATA_CHECKS,
            annotations::SKIP_VERSION_CHECK,
            annotations::SKIP_SINGLE_REPLICA_DETACHED_VOL,
        ] {
            let skips = plan(&[(key, "true")]);
            let errors = refused(None, &skips, &with(&[Power::Image]));
            assert_eq!(errors.len(), 1, "{key}");
            assert!(
                errors[0].to_string().contains("upgradeplans/skip-checks"),
                "{}",
                errors[0]
            );
            assert!(refused(None, &skips, &with(&[Power::SkipChecks])).is_empty());
            assert!(refused(None, &plan(&[(key, "false")]), &with(&[])).is_empty());
        }
        let mut forced = plan(&[]);
        forced.spec.force = Some(true);
        assert_eq!(refused(None, &forced, &with(&[])).len(), 1);
    }

    #[test]
    fn s11_volumes_may_be_skipped_later_by_who_may() {
        let (before, after) = (plan(&[]), plan(&[(annotations::SKIP_VOLUMES, "pvc-1")]));
        assert_eq!(refused(Some(&before), &after, &with(&[])).len(), 1);
        assert!(refused(Some(&before), &after, &with(&[Power::SkipChecks])).is_empty());
        assert!(
            refused(Some(&after), &before, &with(&[])).is_empty(),
            "less is always allowed"
        );
    }

    #[test]
    fn s11_who_skips_what_is_recorded_and_cannot_be_put_on_another_user() {
        let at = "2026-03-13T03:57:09Z".parse().unwrap();
        let skips = plan(&[
            (annotations::SKIP_WEBHOOK, "true"),
            (annotations::OVERRIDES, "{\"by\": \"bob\"}"),
        ]);
        let noted_by = |old: Option<&UpgradePlan>, new: &UpgradePlan| noted(old, new, "alice\n", at);
        let text = noted_by(None, &skips).unwrap();
        let records: Vec<Override> = serde_json::from_str(&text).unwrap();
        let record = &records[0];
        assert_eq!((record.by.as_str(), record.what.len()), ("alice", 1));
        assert_eq!(noted_by(None, &plan(&[(annotations::OVERRIDES, "forged")])), None);
        let before = plan(&[(annotations::SKIP_WEBHOOK, "true"), (annotations::OVERRIDES, &text)]);
        assert_eq!(
            noted_by(Some(&before), &skips),
            Some(text),
            "a later change does not rewrite it"
        );
    }

    #[test]
    fn no_client_is_admitted_while_the_api_server_does_not_respond() {
        let asker = Asker {
            name: "alice".into(),
            powers: Err("no answer within 5 seconds".into()),
        };
        let text = refused(None, &plan(&[(annotations::SKIP_WEBHOOK, "true")]), &asker)[0].to_string();
        assert!(
            text.contains("could not check with the API server") && text.contains("try again"),
            "{text}"
        );
        assert!(refused(None, &plan(&[]), &asker).is_empty());
    }

    #[test]
    fn s02_a_privileged_repository_needs_the_permission_to_choose_images_and_is_fixed() {
        let nginx = plan(&[(annotations::REPO_SERVER, "nginx")]);
        let errors = refused(None, &nginx, &with(&[Power::SkipChecks]));
        assert!(errors[0].to_string().contains("upgradeplans/image"), "{}", errors[0]);
        assert!(refused(None, &nginx, &with(&[Power::Image])).is_empty());
        assert!(refused(None, &plan(&[(annotations::REPO_SERVER, "toolkit")]), &with(&[])).is_empty());
        for (old, new) in [(&plan(&[]), &nginx), (&nginx, &plan(&[]))] {
            let errors = refused(Some(old), new, &with(&Power::ALL));
            assert!(errors[0].to_string().contains("immutable"), "{}", errors[0]);
        }
    }

    #[rstest::rstest]
    #[case(annotations::SKIP_GC_THRESHOLD_CHECK, &["true", "1", "t", "T", "TRUE", "True"], &["false", "0"])]
    #[case(annotations::MIN_CERTS_EXPIRATION_IN_DAY, &["1", "6"], &["7", "30"])]
    fn s11_a_check_that_is_made_weaker_in_any_spelling_is_a_check_left_out(
        #[case] key: &str,
        #[case] weaker: &[&str],
        #[case] harmless: &[&str],
    ) {
        for value in weaker {
            let errors = refused(None, &plan(&[(key, value)]), &with(&[Power::Image]));
            assert_eq!(errors.len(), 1, "{key}={value}");
            assert!(refused(None, &plan(&[(key, value)]), &with(&[Power::SkipChecks])).is_empty());
        }
        for value in harmless {
            assert!(
                refused(None, &plan(&[(key, value)]), &with(&[])).is_empty(),
                "{key}={value}"
            );
        }
    }

    #[test]
    fn s11_each_use_is_recorded_with_its_value_and_none_hides_another() {
        let at = |second: i64| jiff::Timestamp::from_second(1_773_374_229 + second).unwrap();
        let mut known = plan(&[]);
        let mut old = None;
        for second in 0..30 {
            let mut new = plan(&[(annotations::SKIP_VOLUMES, &format!("pvc-{second}"))]);
            let text = noted(old.as_ref(), &new, "alice", at(second)).unwrap();
            let annotations = new.metadata.annotations.get_or_insert_default();
            annotations.insert(annotations::OVERRIDES.to_owned(), text);
            known = new.clone();
            old = Some(new);
        }
        let all = Override::all(&known);
        assert_eq!(all.len(), 20, "the last ones");
        assert_eq!(all[19].at, at(29));
        assert!(all[19].what[0].contains("pvc-29") && all[18].what[0].contains("pvc-28"));
    }
}
