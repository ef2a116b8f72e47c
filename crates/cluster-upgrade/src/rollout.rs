//! Whether a Deployment runs its current template. Pure.

use api::ProgramWait;
use k8s_openapi::api::apps::v1::Deployment;

use program::report::{Look, Waiting};

/// What a Deployment still lacks; nothing when it is rolled out.
#[must_use]
pub fn missing(deployment: &Deployment) -> Option<String> {
    let wanted = deployment.spec.as_ref().and_then(|spec| spec.replicas).unwrap_or(1);
    let Some(status) = &deployment.status else {
        return Some("it has no status yet".to_owned());
    };
    if status.observed_generation < deployment.metadata.generation {
        return Some("its last change has not been observed yet".to_owned());
    }
    let updated = status.updated_replicas.unwrap_or(0);
    let all = status.replicas.unwrap_or(0);
    let available = status.available_replicas.unwrap_or(0);
    if updated < wanted {
        return Some(format!("{updated} of {wanted} pods are of the new kind"));
    }
    if all > updated {
        return Some(format!("{} old pods are still there", all - updated));
    }
    (available < updated).then(|| format!("{available} of {updated} pods are available"))
}

/// What a look at a Deployment says; `None` is one that does not exist yet.
#[must_use]
pub fn look(called: &str, deployment: Option<&Deployment>) -> Look {
    let lacks = match deployment {
        None => Some("it does not exist yet".to_owned()),
        Some(deployment) => missing(deployment),
    };
    Look::of(lacks.map_or_else(Vec::new, |lacks| {
        vec![Waiting {
            what: ProgramWait::Rollout,
            object: called.to_owned(),
            message: format!("{called} is not rolled out: {lacks}"),
        }]
    }))
}

#[cfg(test)]
mod tests {
    use rstest::rstest;
    use serde_json::json;

    use super::*;

    #[rstest]
    #[case(json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}), None)]
    #[case(json!({"observedGeneration": 1, "replicas": 3, "updatedReplicas": 3, "availableReplicas": 3}),
        Some("its last change has not been observed yet"))]
    #[case(json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 2, "availableReplicas": 3}),
        Some("2 of 3 pods are of the new kind"))]
    #[case(json!({"observedGeneration": 2, "replicas": 4, "updatedReplicas": 3, "availableReplicas": 4}),
        Some("1 old pods are still there"))]
    #[case(json!({"observedGeneration": 2, "replicas": 3, "updatedReplicas": 3}), Some("0 of 3 pods are available"))]
    fn a_rollout_is_done_when_all_pods_are_new_and_available(
        #[case] status: serde_json::Value,
        #[case] lacks: Option<&str>,
    ) {
        let deployment: Deployment = serde_json::from_value(json!({
            "metadata": {"name": "d", "generation": 2},
            "spec": {"replicas": 3, "selector": {}, "template": {}}, "status": status,
        }))
        .unwrap();
        assert_eq!(missing(&deployment).as_deref(), lacks);
    }
}
