//! What is changed of the charts that RKE2 brings: Multus must never be reinstalled, Traefik gets its settings.

use api::{ProgramWait, foreign::helm::HelmChartConfig, names};
use serde_json::{Value, json};

use program::{error::Result, report::Waiting, step::StepContext};

use super::{context::Context, version_line::is_of_line};

const MULTUS: &str = "rke2-multus";
const TRAEFIK: &str = "rke2-traefik";
/// Console and upload connections live long; Traefik would cut them after a minute.
const LONGEST_CONNECTION: &str = "30m";

/// Multus' chart must stop when it fails. By default it is reinstalled, which deletes its CRD and with it every
/// network of the cluster.
pub(super) async fn guard_multus(context: &Context, ctx: StepContext<'_>) -> Result<()> {
    let configs = context.namespaced::<HelmChartConfig>(names::KUBE_SYSTEM_NAMESPACE);
    let current = configs.get(MULTUS).await?;
    let Some(change) = multus_change(current.as_ref()) else {
        return Ok(());
    };
    match current {
        None => configs.apply(MULTUS, &change).await?,
        Some(_) => configs.merge(MULTUS, &change).await?,
    };
    let object = configs.called(MULTUS);
    let taking_in = Waiting {
        what: ProgramWait::HelmChartConfig,
        message: format!("waiting until RKE2 has observed the change of {object}"),
        object,
    };
    context.give_time(ctx, taking_in, context.pauses.helm_config).await;
    Ok(())
}

/// What makes Multus' chart stop on failure: an object when there is none, else a patch; nothing when it does already.
#[must_use]
pub fn multus_change(current: Option<&HelmChartConfig>) -> Option<Value> {
    let spec = json!({"failurePolicy": "abort"});
    match current {
        None => Some(object(MULTUS, &spec)),
        Some(config) if config.spec.failure_policy.as_deref() == Some("abort") => None,
        Some(_) => Some(json!({ "spec": spec })),
    }
}

/// Traefik's settings. A user's own settings are kept.
pub(super) async fn configure_traefik(context: &Context, _: StepContext<'_>) -> Result<()> {
    if !is_of_line(context.previous_version()?, 1, 8) {
        return Ok(());
    }
    let configs = context.namespaced::<HelmChartConfig>(names::KUBE_SYSTEM_NAMESPACE);
    if configs.get(TRAEFIK).await?.is_none() {
        configs.apply(TRAEFIK, &traefik()).await?;
    }
    Ok(())
}

fn traefik() -> Value {
    let timeout =
        |of: &str| format!("- --entryPoints.websecure.transport.respondingTimeouts.{of}={LONGEST_CONNECTION}");
    let values = [
        "logs:",
        "  access:",
        "    enabled: true",
        "service:",
        // Charts from 40 on render only what is below `spec`, and say nothing of the rest.
        "  spec:",
        "    type: LoadBalancer",
        "additionalArguments:",
        &timeout("readTimeout"),
        &timeout("writeTimeout"),
        "",
    ]
    .join("\n");
    object(TRAEFIK, &json!({ "valuesContent": values }))
}

fn object(name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "helm.cattle.io/v1", "kind": "HelmChartConfig",
        "metadata": {"name": name, "namespace": names::KUBE_SYSTEM_NAMESPACE}, "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn multus_is_guarded_once_and_its_values_are_left_alone() {
        assert_eq!(multus_change(None).unwrap()["spec"], json!({"failurePolicy": "abort"}));
        let mut config = HelmChartConfig::named(MULTUS);
        config.spec.values_content = Some("a: 1".into());
        assert_eq!(
            multus_change(Some(&config)),
            Some(json!({"spec": {"failurePolicy": "abort"}}))
        );
        config.spec.failure_policy = Some("abort".into());
        assert_eq!(multus_change(Some(&config)), None);
    }

    #[test]
    fn r13_traefiks_values_are_where_its_chart_reads_them() {
        let object = traefik();
        let values: Value = serde_saphyr::from_str(object["spec"]["valuesContent"].as_str().unwrap()).unwrap();
        assert_eq!(
            values,
            json!({
                "logs": {"access": {"enabled": true}},
                "service": {"spec": {"type": "LoadBalancer"}},
                "additionalArguments": [
                    "--entryPoints.websecure.transport.respondingTimeouts.readTimeout=30m",
                    "--entryPoints.websecure.transport.respondingTimeouts.writeTimeout=30m",
                ],
            })
        );
    }
}
