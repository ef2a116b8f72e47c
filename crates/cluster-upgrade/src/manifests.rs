//! Manifests that come with this program: CDI's, applied as they are, and the addons'.

use std::path::{Path, PathBuf};

use kube::{
    Api,
    api::{DynamicObject, GroupVersionKind, Patch, PatchParams},
    discovery::{Scope, pinned_kind},
};
use serde_json::Value;

use program::{
    error::{Error, Result},
    step::StepContext,
};

use super::{context::Context, objects::FIELD_MANAGER};

/// The manifests that come with this program.
pub trait Manifests: Send + Sync {
    /// CDI's objects; at least one, and each says what it is.
    ///
    /// # Errors
    /// They are not there or of no use.
    fn cdi(&self) -> Result<Vec<Value>>;
    /// The manifest of an addon.
    ///
    /// # Errors
    /// It is there and of no use.
    fn addon(&self, name: &str) -> Result<AddonManifest>;
    /// The manifest that an addon has in an older line of releases (`v1.7`), where it is known.
    ///
    /// # Errors
    /// It is there and of no use.
    fn addon_before(&self, _line: &str, _name: &str) -> Result<Option<Value>> {
        Ok(None)
    }
}

/// The manifest of an addon, or why there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum AddonManifest {
    /// The addon.
    Found(Value),
    /// Why there is none.
    Absent(String),
}

/// Manifests in two folders, one for CDI and one with `<name>.yaml` for each addon, and with folders like that for older
/// lines of releases (`v1.7/<name>.yaml`).
#[derive(Clone, Debug)]
pub struct Folders {
    /// The folder of the addons' manifests.
    pub addons: PathBuf,
    /// The folder of CDI's.
    pub cdi: PathBuf,
}

impl Manifests for Folders {
    fn cdi(&self) -> Result<Vec<Value>> {
        read_cdi(&self.cdi)
    }

    fn addon(&self, name: &str) -> Result<AddonManifest> {
        let file = self.addons.join(format!("{name}.yaml"));
        if !file.exists() {
            let why = format!("its manifest {} does not exist", file.display());
            return Ok(AddonManifest::Absent(why));
        }
        let absent = || AddonManifest::Absent(format!("{} does not contain it", file.display()));
        Ok(addon_in(&file, name)?.map_or_else(absent, AddonManifest::Found))
    }

    fn addon_before(&self, line: &str, name: &str) -> Result<Option<Value>> {
        let file = self.addons.join(line).join(format!("{name}.yaml"));
        if file.exists() { addon_in(&file, name) } else { Ok(None) }
    }
}

fn addon_in(file: &Path, name: &str) -> Result<Option<Value>> {
    let is_it = |object: &Value| object["kind"] == "Addon" && object["metadata"]["name"] == name;
    Ok(documents(file)?.into_iter().find(is_it))
}

/// CDI's definitions. The Harvester chart brings the object that asks for CDI and the operator that answers, but Helm
/// leaves definitions that exist as they are.
pub(super) async fn apply_cdi(context: &Context, _: StepContext<'_>) -> Result<()> {
    for object in context.manifests.cdi()? {
        apply(context, &object).await?;
    }
    Ok(())
}

/// All objects in the folder of CDI's manifests; at least one.
fn read_cdi(folder: &Path) -> Result<Vec<Value>> {
    let unusable = |why: &str| {
        Error::Permanent(format!(
            "there are no usable manifests of CDI in {}: {why}. They are part of the toolkit's image (build argument \
             CDI_VERSION): run an image that has them, or name their folder with --cdi",
            folder.display()
        ))
    };
    let mut objects = Vec::new();
    for file in yaml_files(folder).map_err(|error| unusable(&error.to_string()))? {
        for object in documents(&file).map_err(|error| unusable(&error.to_string()))? {
            let is_text = |path: &str| object.pointer(path).is_some_and(Value::is_string);
            if !["/apiVersion", "/kind", "/metadata/name"].into_iter().all(is_text) {
                let why = format!("{} has a document without apiVersion, kind or name", file.display());
                return Err(unusable(&why));
            }
            objects.push(object);
        }
    }
    if objects.is_empty() {
        return Err(unusable("it has no YAML files with objects"));
    }
    Ok(objects)
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
fn documents(file: &Path) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(file).map_err(|error| Error::file("read", file, error))?;
    let documents: Vec<Value> = serde_saphyr::from_multiple(&text)
        .map_err(|error| Error::Permanent(format!("{} is not YAML: {error}", file.display())))?;
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
        kube::Error::Discovery(error) => Error::Transient(format!("failed to {what}: {error}")),
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
            Err(Error::Transient(format!("failed to {what}: {}", status.message)))
        }
        Err(error) => Err(Error::api(what, error)),
    }
}
