//! Manifests that come with this program: CDI's, applied as they are, and the addons'.

use std::path::{Path, PathBuf};

use kube::{
    Api,
    api::{DynamicObject, GroupVersionKind, Patch, PatchParams},
    discovery::{Scope, pinned_kind},
};
use serde_json::Value;

use crate::{
    error::{Error, Result},
    step::Pace,
};

use super::{context::Context, objects::FIELD_MANAGER};

/// CDI's operator and definitions. The Harvester chart brings only the object that asks for CDI.
pub(super) async fn apply_cdi(context: &Context, _: Pace<'_>) -> Result<()> {
    let files = yaml_files(&context.cdi)?;
    if files.is_empty() {
        return Err(Error::Lasting(format!(
            "there are no manifests of CDI in {}",
            context.cdi.display()
        )));
    }
    for file in files {
        for object in documents(&file)? {
            apply(context, &object).await?;
        }
    }
    Ok(())
}

/// YAML files of a folder, by name.
fn yaml_files(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = std::fs::read_dir(folder).map_err(|error| Error::file("read", folder, error))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry.map_err(|error| Error::file("read", folder, error))?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "yaml" || extension == "yml")
        {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// The objects of a file.
pub(super) fn documents(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::file("read", file, error))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|error| Error::Lasting(format!("{} is not YAML: {error}", file.display())))?;
    Ok(documents.into_iter().filter(|document| !document.is_null()).collect())
}

/// Applies an object of any kind. A kind that was defined a moment ago may not be served yet.
async fn apply(context: &Context, object: &Value) -> Result<()> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
    let (namespace, name) = (
        text(&object["metadata"]["namespace"]),
        text(&object["metadata"]["name"]),
    );
    let what = format!("apply {kind} {name}");
    let (group, version) = version.split_once('/').unwrap_or(("", version.as_str()));
    let found = pinned_kind(&context.client, &GroupVersionKind::gvk(group, version, &kind)).await;
    let (resource, capabilities) = found.map_err(|error| match error {
        kube::Error::Discovery(error) => Error::Passing(format!("failed to {what}: {error}")),
        error => Error::api(what.clone(), error),
    })?;
    let api: Api<DynamicObject> = match capabilities.scope {
        Scope::Cluster => Api::all_with(context.client.clone(), &resource),
        Scope::Namespaced => Api::namespaced_with(context.client.clone(), &namespace, &resource),
    };
    let applied = api
        .patch(&name, &PatchParams::apply(FIELD_MANAGER).force(), &Patch::Apply(object))
        .await;
    match applied {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => {
            Err(Error::Passing(format!("failed to {what}: {}", status.message)))
        }
        Err(error) => Err(Error::api(what, error)),
    }
}
