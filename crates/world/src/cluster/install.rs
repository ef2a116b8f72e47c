//! Puts a generated cluster onto a Kubernetes API.

use std::{collections::BTreeMap, time::Duration};

use api::{UpgradePlan, crd, foreign};
use kube::{
    Client, Resource,
    api::{GetParams, Patch, PatchParams, PostParams, Request},
};
use serde_json::{Value, json};

use crate::{
    actor::harvester_chart::FIELD_MANAGER,
    error::{Error, Result},
};

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// How often a request to a kind that was only just defined is tried again.
const ATTEMPTS: u32 = 50;
const PAUSE: Duration = Duration::from_millis(100);

/// Built-in kinds that generated clusters contain: plural, namespaced.
const BUILT_IN: [(&str, &str, bool); 10] = [
    ("Namespace", "namespaces", false),
    ("Node", "nodes", false),
    ("Pod", "pods", true),
    ("Secret", "secrets", true),
    ("PersistentVolumeClaim", "persistentvolumeclaims", true),
    ("EndpointSlice", "endpointslices", true),
    ("PodDisruptionBudget", "poddisruptionbudgets", true),
    ("ConfigMap", "configmaps", true),
    ("Deployment", "deployments", true),
    ("DaemonSet", "daemonsets", true),
];

/// How a kind is addressed.
struct Address {
    plural: String,
    namespaced: bool,
    has_status: bool,
}

fn addresses() -> BTreeMap<(String, String), Address> {
    let mut addresses = BTreeMap::new();
    for kind in foreign::ALL {
        let address = Address {
            plural: kind.plural.to_owned(),
            namespaced: kind.namespaced,
            has_status: kind.has_status,
        };
        addresses.insert(
            (format!("{}/{}", kind.group, kind.version), kind.kind.to_owned()),
            address,
        );
    }
    for (kind, plural, namespaced) in BUILT_IN {
        let group = match kind {
            "EndpointSlice" => "discovery.k8s.io/v1",
            "PodDisruptionBudget" => "policy/v1",
            "Deployment" | "DaemonSet" => "apps/v1",
            _ => "v1",
        };
        let address = Address {
            plural: plural.to_owned(),
            namespaced,
            has_status: !matches!(kind, "Secret" | "EndpointSlice" | "ConfigMap"),
        };
        addresses.insert((group.to_owned(), kind.to_owned()), address);
    }
    let plan = Address {
        plural: UpgradePlan::plural(&()).into_owned(),
        namespaced: false,
        has_status: true,
    };
    addresses.insert(
        (UpgradePlan::api_version(&()).into_owned(), "UpgradePlan".to_owned()),
        plan,
    );
    addresses
}

/// Which definitions of the foreign kinds a cluster serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Definitions {
    /// Our own small ones: the fields that we use have their types, and all others are kept.
    #[default]
    Ours,
    /// Those of the projects that the kinds belong to: what they do not name is dropped or refused.
    Given(&'static [Value]),
}

/// Defines our kind and the foreign ones by our own definitions, then creates the objects with their status. What exists
/// already is left, but for its status.
///
/// # Errors
/// When the API refuses an object or cannot be reached.
pub async fn install(client: &Client, objects: &[Value]) -> Result<(), Error> {
    install_by(client, Definitions::Ours, objects).await
}

/// The same with definitions of the caller's choice.
///
/// # Errors
/// When the API refuses an object or cannot be reached.
pub async fn install_by(client: &Client, definitions: Definitions, objects: &[Value]) -> Result<(), Error> {
    let path = DEFINITIONS;
    let ours = crd::upgrade_plan();
    // Definitions are large, and a cluster to which objects are added already has them.
    if !exists(client, path, &ours).await? {
        define_foreign(client, definitions).await?;
        post(client, path, &ours).await?;
    }
    let addresses = addresses();
    for namespace in namespaces(objects) {
        let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        post(client, "/api/v1/namespaces", &object).await?;
    }
    for object in objects {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (version, kind) = (text(&object["apiVersion"]), text(&object["kind"]));
        let (namespace, name) = (
            text(&object["metadata"]["namespace"]),
            text(&object["metadata"]["name"]),
        );
        let Some(address) = addresses.get(&(version.clone(), kind.clone())) else {
            return Err(Error::Unaddressable(format!("{version} {kind} {name}")));
        };
        let root = if version.contains('/') { "apis" } else { "api" };
        let plural = &address.plural;
        let path = if address.namespaced {
            format!("/{root}/{version}/namespaces/{namespace}/{plural}")
        } else {
            format!("/{root}/{version}/{plural}")
        };
        if kind == "KubeVirt" {
            apply(client, &path, object).await?;
        } else {
            post(client, &path, object).await?;
        }
        if address.has_status && object.get("status").is_some() {
            let patch = json!({"status": object["status"]});
            let what = format!("set the status of {kind} {namespace}/{name}");
            let request = Request::new(path)
                .patch_subresource("status", &name, &PatchParams::default(), &Patch::Merge(&patch))
                .map_err(|error| Error::api(what.clone(), kube::Error::BuildRequest(error)))?;
            client
                .request::<Value>(request)
                .await
                .map_err(|error| Error::api(what, error))?;
        }
    }
    Ok(())
}

/// Defines the foreign kinds alone, for a cluster on which our own kind is already installed.
///
/// # Errors
/// When the API refuses a definition or cannot be reached.
pub async fn define_foreign(client: &Client, definitions: Definitions) -> Result<(), Error> {
    let ours;
    let foreign = match definitions {
        Definitions::Ours => {
            ours = with_columns(crd::foreign());
            &ours
        }
        Definitions::Given(definitions) => definitions,
    };
    for definition in foreign {
        post(client, DEFINITIONS, definition).await?;
    }
    Ok(())
}

/// The name of a column, its type and its path.
type Column = (&'static str, &'static str, &'static str);

/// What `kubectl get` shows of kinds that people look at: the columns of the real definitions.
const COLUMNS: [(&str, &[Column]); 3] = [
    (
        "virtualmachines.kubevirt.io",
        &[
            ("Age", "date", ".metadata.creationTimestamp"),
            ("Status", "string", ".status.printableStatus"),
            ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
        ],
    ),
    (
        "virtualmachineinstances.kubevirt.io",
        &[
            ("Age", "date", ".metadata.creationTimestamp"),
            ("Phase", "string", ".status.phase"),
            ("NodeName", "string", ".status.nodeName"),
            ("Ready", "string", ".status.conditions[?(@.type=='Ready')].status"),
        ],
    ),
    (
        "volumes.longhorn.io",
        &[
            ("State", "string", ".status.state"),
            ("Robustness", "string", ".status.robustness"),
            ("Node", "string", ".status.currentNodeID"),
            ("Age", "date", ".metadata.creationTimestamp"),
        ],
    ),
];

fn with_columns(mut definitions: Vec<Value>) -> Vec<Value> {
    for (name, columns) in COLUMNS {
        let columns: Vec<Value> = columns
            .iter()
            .map(|(name, type_, path)| json!({"name": name, "type": type_, "jsonPath": path}))
            .collect();
        let mut named = definitions.iter_mut().filter(|one| one["metadata"]["name"] == name);
        let versions = named.next().and_then(|one| one["spec"]["versions"].as_array_mut());
        for version in versions.into_iter().flatten() {
            version["additionalPrinterColumns"] = json!(columns);
        }
    }
    definitions
}

/// Applies an object under the name of Fleet's agent, which owns it as its chart has it from the first day on.
async fn apply(client: &Client, path: &str, object: &Value) -> Result<()> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("apply {} {name}", object["kind"]);
    let mut object = object.clone();
    object["status"] = Value::Null;
    let params = PatchParams::apply(FIELD_MANAGER).force();
    let request = Request::new(path)
        .patch(name, &params, &Patch::Apply(&object))
        .map_err(|error| Error::api(what.clone(), kube::Error::BuildRequest(error)))?;
    let applied = client.request::<Value>(request).await;
    applied.map(drop).map_err(|error| Error::api(what, error))
}

/// Namespaces that objects are in, sorted.
fn namespaces(objects: &[Value]) -> Vec<String> {
    let named = objects
        .iter()
        .filter_map(|object| object["metadata"]["namespace"].as_str());
    let mut names: Vec<String> = named.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    names
}

/// Whether an object is there.
async fn exists(client: &Client, path: &str, object: &Value) -> Result<bool> {
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let what = format!("get {name}");
    let request = Request::new(path)
        .get(name, &GetParams::default())
        .map_err(|error| Error::api(what.clone(), kube::Error::BuildRequest(error)))?;
    match client.request::<Value>(request).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(false),
        Err(error) => Err(Error::api(what, error)),
    }
}

/// Creates an object unless it exists. A kind that was only just defined may not be served yet.
async fn post(client: &Client, path: &str, object: &Value) -> Result<()> {
    let what = format!("create {} {}", object["kind"], object["metadata"]["name"]);
    let body = serde_json::to_vec(object)?;
    let mut attempt = 0;
    loop {
        let request = Request::new(path)
            .create(&PostParams::default(), body.clone())
            .map_err(|error| Error::api(what.clone(), kube::Error::BuildRequest(error)))?;
        match client.request::<Value>(request).await {
            Ok(_) => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 409 => return Ok(()),
            Err(kube::Error::Api(status)) if status.code == 404 && attempt < ATTEMPTS => {
                attempt += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(Error::api(what, error)),
        }
    }
}
