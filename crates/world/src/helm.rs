//! Helm's releases, as the simulated cluster keeps them.

use cluster_upgrade::helm_release::{self, Chart, ChartMetadata, HelmRelease, Info};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client,
    api::{ListParams, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use crate::{
    context::Context,
    error::{Error, Result},
};

/// A chart's name, version, and the version of what it installs.
pub(crate) type ChartVersion<'a> = (&'a str, &'a str, &'a str);

/// The first revision of a release, from long ago.
pub(crate) fn installed(namespace: &str, name: &str, chart: ChartVersion<'_>, values: Value, at: &str) -> Value {
    let mut release = revision(name, 1, chart, values);
    release.info.last_deployed = at.parse().ok();
    // Values in memory always encode.
    helm_release::secret(namespace, &release).unwrap_or_default()
}

fn revision(name: &str, revision: i64, (chart, version, app): ChartVersion<'_>, values: Value) -> HelmRelease {
    HelmRelease {
        name: name.to_owned(),
        revision,
        info: Info {
            status: "deployed".to_owned(),
            description: "Upgrade complete".to_owned(),
            last_deployed: None,
        },
        chart: Chart {
            metadata: ChartMetadata {
                name: chart.to_owned(),
                version: version.to_owned(),
                app_version: app.to_owned(),
            },
            values: json!({}),
        },
        config: values,
    }
}

fn secrets(client: &Client, namespace: &str) -> Api<Secret> {
    Api::namespaced(client.clone(), namespace)
}

/// All revisions of a release, oldest first.
pub(crate) async fn history(world: &Context, namespace: &str, name: &str) -> Result<Vec<HelmRelease>> {
    let of_release = ListParams::default().labels(&format!("owner=helm,name={name}"));
    let found = secrets(&world.client, namespace).list(&of_release).await;
    let found = found.map_err(|error| Error::api(format!("list revisions of {namespace}/{name}"), error))?;
    Ok(helm_release::history(&found.items))
}

/// Deploys a release, unless its newest revision is that already; the one before is superseded.
pub(crate) async fn deploy(
    world: &Context,
    (namespace, name): (&str, &str),
    chart: ChartVersion<'_>,
    values: &Value,
) -> Result<()> {
    let history = history(world, namespace, name).await?;
    let newest = history.last();
    let is_same = |release: &HelmRelease| release.chart.metadata.version == chart.1 && release.config == *values;
    if newest.is_some_and(is_same) {
        return Ok(());
    }
    for old in history.iter().filter(|old| old.info.status == "deployed") {
        let mut superseded = old.clone();
        superseded.info.status = "superseded".to_owned();
        write(world, namespace, &superseded, false).await?;
    }
    let mut next = revision(
        name,
        newest.map_or(1, |newest| newest.revision + 1),
        chart,
        values.clone(),
    );
    next.info.last_deployed = Some(world.clock.now_in_seconds());
    write(world, namespace, &next, true).await
}

async fn write(world: &Context, namespace: &str, release: &HelmRelease, is_new: bool) -> Result<()> {
    let what = format!("write revision {} of {namespace}/{}", release.revision, release.name);
    let object =
        helm_release::secret(namespace, release).map_err(|error| Error::Serialise(serde::ser::Error::custom(error)))?;
    let secrets = secrets(&world.client, namespace);
    let written = if is_new {
        let secret: Secret = serde_json::from_value(object)?;
        secrets.create(&PostParams::default(), &secret).await
    } else {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        secrets
            .patch(name, &PatchParams::default(), &Patch::Merge(&object))
            .await
    };
    match written {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        Err(error) => Err(Error::api(what, error)),
    }
}
