//! Upgrades that an older manager began and this one continues: notes in annotations of the plan, no certificate and no
//! digests on record, a repository that is read over plain HTTP, the journal of Rancher's upgrade in its old place.

use std::{collections::BTreeMap, time::Duration};

use api::{Phase, UpgradePlan, annotations, names};
use cli::rehearsal::{Rehearsal, beginning};
use clock::Clock;
use jiff::Timestamp;
use k8s_openapi::api::{
    apps::v1::Deployment,
    core::v1::{ConfigMap, Secret},
};
use kube::{
    Api, ResourceExt,
    api::{DeleteParams, Patch, PatchParams, PostParams},
};
use rstest::rstest;
use serde_json::{Value, json};

use crate::{
    run::{Case, in_paused_time},
    timeline::versions,
    watched::Watched,
};

const LONG: Duration = Duration::from_secs(12 * 3600);

/// The notes of a plan that older managers took too.
fn notes_of(plan: &UpgradePlan) -> BTreeMap<String, String> {
    let notes = plan.status.as_ref().and_then(|status| status.notes.clone());
    let notes = notes.unwrap_or_default().into_iter();
    notes
        .filter(|(key, _)| annotations::NOTES.contains(&key.as_str()))
        .collect()
}

/// A repository that serves over plain HTTP only, and no manifest.
fn without_certificate(deployment: &Deployment) -> Value {
    let mut plain = serde_json::to_value(deployment).unwrap();
    for key in [annotations::SERVES_MANIFEST, annotations::REPO_SECRET] {
        plain["metadata"]["annotations"].as_object_mut().unwrap().remove(key);
    }
    let pod = &mut plain["spec"]["template"]["spec"];
    let is_other = |one: &Value| one["name"] != "tls" && one["name"] != "https";
    pod["volumes"].as_array_mut().unwrap().retain(is_other);
    let container = &mut pod["containers"][0];
    container["volumeMounts"].as_array_mut().unwrap().retain(is_other);
    container["ports"].as_array_mut().unwrap().retain(is_other);
    container["args"] = json!(["repo", "--iso", "/iso/disk.img", "--listen", ":8080"]);
    plain
}

/// Leaves a plan and what belongs to it as an older manager would have. Returns its notes.
async fn make_older(rehearsal: &Rehearsal, name: &str) -> BTreeMap<String, String> {
    let client = rehearsal.server.client();
    let how = PatchParams::default();
    let plans: Api<UpgradePlan> = Api::all(client.clone());
    let plan = plans.get(name).await.unwrap();
    let mut notes = notes_of(&plan);
    // It is noted with the first pod; older managers did so before.
    let image = plan::observed::Settings::default().own_image.to_string();
    notes.entry(annotations::TOOLKIT_IMAGE.to_owned()).or_insert(image);
    // Today the webhook refuses such annotations.
    rehearsal.take_admission_away().await.unwrap();
    let noted = Patch::Merge(json!({"metadata": {"annotations": notes}}));
    plans.patch(name, &how, &noted).await.unwrap();
    let forgotten = Patch::Merge(json!({"status": {"notes": null, "repository": null, "releaseDigests": null}}));
    plans.patch_status(name, &how, &forgotten).await.unwrap();
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
    if let Some(found) = deployments.get_opt(&names::repo(name)).await.unwrap() {
        let secrets: Api<Secret> = Api::namespaced(client.clone(), names::HARVESTER_NAMESPACE);
        let secret = &found.annotations()[annotations::REPO_SECRET];
        secrets.delete(secret, &DeleteParams::default()).await.unwrap();
        let plain = serde_json::from_value(without_certificate(&found)).unwrap();
        let name = found.name_any();
        deployments
            .replace(&name, &PostParams::default(), &plain)
            .await
            .unwrap();
    }
    let maps: Api<ConfigMap> = Api::namespaced(client, names::HARVESTER_NAMESPACE);
    let journal =
        json!({"metadata": {"name": "upgrade-toolkit-rancher"}, "data": {"target": "v2.14.0", "settled": "false"}});
    let journal = serde_json::from_value(journal).unwrap();
    maps.create(&PostParams::default(), &journal).await.unwrap();
    notes
}

/// What the manager made since then that runs a program, as text.
fn made_since(rehearsal: &Rehearsal, since: Timestamp) -> Vec<String> {
    let user = cli::rehearsal::manager_user();
    let history = rehearsal.server.store().history().into_iter();
    let made = history
        .filter(|write| write.user == user && write.verb.name() == "create" && write.code < 300 && write.at >= since);
    let made = made.filter(|write| ["jobs", "plans", "deployments"].contains(&write.resource.plural.as_str()));
    made.filter_map(|write| Some(write.object?.to_string())).collect()
}

/// What pods said that failed.
fn final_messages(rehearsal: &Rehearsal) -> Vec<String> {
    let pods = versions(rehearsal.server.store(), "pods");
    let failed = pods.iter().filter(|(_, pod)| pod["status"]["phase"] == "Failed");
    let words = failed.map(|(_, pod)| {
        let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"]["message"];
        format!("{}: {ended}", pod["metadata"]["name"])
    });
    words.collect()
}

/// How often something became true from one version to the next.
fn times(all: &[Value], is: impl Fn(&Value) -> bool) -> usize {
    all.windows(2).filter(|pair| !is(&pair[0]) && is(&pair[1])).count()
}

#[rstest]
#[case::before_there_is_a_repository(Phase::ISODownloading, false)]
#[case::as_the_release_is_read(Phase::MetadataPopulating, true)]
#[case::as_images_are_preloaded(Phase::ImagePreloading, true)]
#[case::as_the_cluster_is_upgraded(Phase::ClusterUpgrading, true)]
#[case::as_nodes_are_upgraded(Phase::NodeUpgrading, true)]
#[case::as_it_cleans_up(Phase::CleaningUp, true)]
fn an_upgrade_that_an_older_manager_began_continues_to_its_end(#[case] phase: Phase, #[case] is_plain: bool) {
    in_paused_time(async {
        let rehearsal = Watched::start(Case::three_nodes().scenario, Clock::simulated(beginning(), 1.0)).await;
        let first = rehearsal.start_manager("manager-1");
        let plan = rehearsal.create_unchecked(rehearsal.plan(true, &[])).await.unwrap();
        let name = plan.name_any();
        let there = |plan: &UpgradePlan| plan.phase() >= Some(phase);
        rehearsal.follow(&name, Some(LONG), there).await.unwrap();
        first.abort();
        let _ = first.await;
        let notes = make_older(&rehearsal, &name).await;
        assert!(notes.contains_key(annotations::TOOLKIT_IMAGE), "{notes:?}");
        let since = rehearsal.clock.now();
        let before = versions(rehearsal.server.store(), "upgradeplans").len();

        let _second = rehearsal.start_manager("manager-2");
        let ended = |plan: &UpgradePlan| plan.phase().is_some_and(Phase::is_terminal) && plan.finalizers().is_empty();
        let plan = rehearsal.follow(&name, Some(LONG), ended).await.unwrap();
        assert_eq!(
            plan.phase(),
            Some(Phase::Succeeded),
            "{:#?}",
            final_messages(&rehearsal)
        );

        // The notes moved once, all of them, and stayed where they are now.
        let all = versions(rehearsal.server.store(), "upgradeplans");
        let all: Vec<Value> = all[before - 1..].iter().map(|(_, plan)| (**plan).clone()).collect();
        let has_notes = |plan: &Value| plan["status"]["notes"].is_object();
        let has_annotations = |plan: &Value| {
            annotations::NOTES
                .iter()
                .any(|key| plan["metadata"]["annotations"][*key].is_string())
        };
        assert!(!has_notes(&all[0]) && has_annotations(&all[0]));
        assert_eq!((times(&all, has_notes), times(&all, |plan| !has_notes(plan))), (1, 0));
        assert_eq!(times(&all, |plan| !has_annotations(plan)), 1);
        assert_eq!(times(&all, has_annotations), 0);
        let moved = all.iter().find(|plan| has_notes(plan)).unwrap();
        for (key, value) in &notes {
            assert_eq!(moved["status"]["notes"][key], **value, "{key}");
        }

        // It ends as it began: without a certificate where there was none.
        let status = plan.status.clone().unwrap_or_default();
        let made = made_since(&rehearsal, since);
        if is_plain {
            assert!(status.repository.is_none() && status.release_digests.is_none());
            for object in &made {
                let is_secure = object.contains("https://") || object.contains(names::CERTIFICATE_VARIABLE);
                assert!(!is_secure, "{object}");
            }
        } else {
            assert!(status.repository.is_some() && status.release_digests.is_some());
        }
        assert!(!made.is_empty() || phase == Phase::CleaningUp);
        let events = rehearsal.objects("", "events");
        let warned = events.iter().filter(|event| {
            let message = event.data["message"].as_str().unwrap_or_default();
            message.contains("began under an older manager")
        });
        assert_eq!(warned.count(), usize::from(is_plain && phase <= Phase::NodeUpgrading));
    });
}
