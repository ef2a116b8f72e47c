//! The definitions of foreign kinds: ours say nothing that the real ones do not, and the cluster that we generate is one that
//! the real ones allow.

use std::{collections::BTreeMap, sync::Arc};

use apiserver::{ApiServer, Config};
use kube::{Client, api::Request};
use manager::{client::for_product, field_validation::Mode};
use rstest::rstest;
use serde_json::{Value, json};
use world::{Definitions, Shape};

/// The schemas that a definition serves, by version.
fn schemas(definition: &Value) -> BTreeMap<String, &Value> {
    let versions = definition["spec"]["versions"].as_array().unwrap().iter();
    let served = versions.filter(|version| version["served"] == true);
    served
        .map(|version| {
            let name = version["name"].as_str().unwrap().to_owned();
            (name, &version["schema"]["openAPIV3Schema"])
        })
        .collect()
}

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// What our schema says and the real one does not; counts the fields that were looked at.
fn differences(path: &str, ours: &Value, real: &Value, fields: &mut usize, found: &mut Vec<String>) {
    *fields += 1;
    if real["x-kubernetes-int-or-string"] == true {
        found.push(format!("{path}: is a number or a text, and ours is {}", ours["type"]));
        return;
    }
    if !ours["type"].is_null() && !real["type"].is_null() && ours["type"] != real["type"] {
        found.push(format!("{path}: is {}, and ours is {}", real["type"], ours["type"]));
        return;
    }
    // Where a field may be null, our type must be able to read that.
    if real["nullable"] == true && path.matches('.').count() == 1 && ours["nullable"] != true {
        found.push(format!("{path}: may be null, and ours may not"));
    }
    for (name, child) in ours["properties"].as_object().into_iter().flatten() {
        if path.is_empty() && ["apiVersion", "kind", "metadata"].contains(&name.as_str()) {
            continue;
        }
        let path = format!("{path}.{name}");
        match real["properties"].get(name).or(real["additionalProperties"]
            .as_object()
            .map(|_| &real["additionalProperties"]))
        {
            Some(real) => differences(&path, child, real, fields, found),
            None if real[PRESERVE] == true => {}
            None => found.push(format!("{path}: does not exist")),
        }
    }
    if ours["items"].is_object() && real["items"].is_object() {
        differences(&format!("{path}[]"), &ours["items"], &real["items"], fields, found);
    }
    if ours["additionalProperties"].is_object() {
        match &real["additionalProperties"] {
            real @ Value::Object(_) => {
                differences(&format!("{path}[]"), &ours["additionalProperties"], real, fields, found);
            }
            _ => found.push(format!("{path}: has fixed fields, and ours takes any")),
        }
    }
}

// Seen failing with R-01, `env` for `envs` in our type of a Plan.
#[test]
fn r53_our_definitions_are_parts_of_the_real_ones_and_every_field_that_we_read_exists() {
    let releases = testbed::real_definitions_by_release();
    // Says so where there are none.
    let _ = testbed::real_definitions();
    for (release, definitions) in releases {
        let (mut found, mut kinds, mut fields) = (Vec::new(), 0, 0);
        for (ours, real) in api::crd::foreign().iter().zip(&definitions) {
            let name = ours["metadata"]["name"].as_str().unwrap();
            kinds += 1;
            for field in ["/metadata/name", "/spec/group", "/spec/scope"] {
                assert_eq!(ours.pointer(field), real.pointer(field), "{name} {field}");
            }
            for field in ["kind", "plural", "singular", "listKind", "shortNames"] {
                let given = |definition: &Value| match &definition["spec"]["names"][field] {
                    // The API server fills it in.
                    Value::Null if field == "listKind" => {
                        json!(format!("{}List", definition["spec"]["names"]["kind"].as_str().unwrap()))
                    }
                    Value::Null => json!([]),
                    value => value.clone(),
                };
                let (ours, real) = (given(ours), given(real));
                if ours != real {
                    found.push(format!("{name} names.{field}: is {real}, and ours is {ours}"));
                }
            }
            let stored = |definition: &Value| {
                let mut versions = definition["spec"]["versions"].as_array().unwrap().iter();
                versions.find(|version| version["storage"] == true).unwrap().clone()
            };
            let (our_stored, real_stored) = (stored(ours), stored(real));
            if our_stored["name"] != real_stored["name"] {
                found.push(format!("{name}: {} is stored", real_stored["name"]));
            }
            let has_status = |version: &Value| version["subresources"].get("status").is_some();
            if has_status(&our_stored) != has_status(&real_stored) {
                found.push(format!("{name}: /status is another"));
            }
            let real = schemas(real);
            for (version, ours) in schemas(ours) {
                let Some(real) = real.get(&version) else {
                    found.push(format!("{name}: {version} is not served"));
                    continue;
                };
                let mut of_kind = Vec::new();
                differences("", ours, real, &mut fields, &mut of_kind);
                found.extend(of_kind.iter().map(|text| format!("{name} {text}")));
            }
        }
        println!("{release}: {kinds} kinds, {fields} fields that we read");
        assert!(found.is_empty(), "{release}:\n{}", found.join("\n"));
        assert!(fields > 150, "{fields}");
    }
}

/// The foreign kinds and our own, by the real definitions where there are any.
async fn cluster() -> (ApiServer, Client) {
    let server = ApiServer::new(Config::new(Arc::new(|| "2026-03-13T03:57:09Z".parse().unwrap())));
    let (definitions, mode) = match testbed::real_definitions() {
        Some(real) => (Definitions::Given(real), Mode::Strict),
        None => (Definitions::Ours, Mode::Warn),
    };
    let (client, _) = for_product(server.client(), mode);
    world::install_by(&client, definitions, &[]).await.unwrap();
    (server, client)
}

#[rstest]
#[case::several_nodes(Shape::default())]
#[case::one_node(Shape { nodes: 1, ..Shape::default() })]
#[case::a_witness(Shape { nodes: 4, witness: true, vms: 12, seed: 7, ..Shape::default() })]
#[case::an_uploaded_image(Shape { image: Some("iso".to_owned()), ..Shape::default() })]
#[tokio::test]
async fn r44_r47_r48_every_object_of_a_generated_cluster_is_valid_by_the_real_definitions(#[case] shape: Shape) {
    let (_server, client) = cluster().await;
    let mut refused = Vec::new();
    for object in shape.objects() {
        if let Err(error) = world::install_by(&client, Definitions::Ours, std::slice::from_ref(&object)).await {
            let mut text = error.to_string();
            let mut source = std::error::Error::source(&error);
            while let Some(inner) = source {
                text = format!("{text}: {inner}");
                source = inner.source();
            }
            refused.push(text);
        }
    }
    refused.sort();
    refused.dedup();
    assert!(
        refused.is_empty(),
        "{} are refused:\n{}",
        refused.len(),
        refused.join("\n")
    );
}

/// The objects of a kind in a generated cluster.
fn objects_of(kind: &str, group: &str) -> Vec<Value> {
    let objects = Shape::default().objects().into_iter();
    let is_of = |object: &Value| {
        object["apiVersion"]
            .as_str()
            .is_some_and(|version| version.starts_with(group))
    };
    let found: Vec<Value> = objects
        .filter(|object| object["kind"] == kind && is_of(object))
        .collect();
    assert!(!found.is_empty(), "{kind}");
    found
}

#[test]
fn r44_every_addon_says_where_its_chart_is() {
    for addon in objects_of("Addon", "harvesterhci.io/") {
        assert!(addon["spec"]["repo"].is_string(), "{addon}");
    }
}

#[test]
fn r47_every_machine_says_what_it_was_made_by_and_what_it_runs_on() {
    for machine in objects_of("Machine", "cluster.x-k8s.io/") {
        let spec = &machine["spec"];
        assert!(spec["bootstrap"]["configRef"]["name"].is_string(), "{machine}");
        assert!(spec["infrastructureRef"]["name"].is_string(), "{machine}");
    }
}

#[test]
fn r48_every_chart_repository_says_which_generation_was_read() {
    for repo in objects_of("ClusterRepo", "catalog.cattle.io/") {
        assert!(repo["status"]["observedGeneration"].is_u64(), "{repo}");
    }
}

#[tokio::test]
async fn r43_some_kinds_have_no_status_subresource_and_their_generation_rises_with_their_status() {
    let (server, client) = cluster().await;
    for kind in api::foreign::ALL.iter().filter(|kind| !kind.has_status) {
        let scope = if kind.namespaced { "/namespaces/default" } else { "" };
        let path = format!("/apis/{}/{}{scope}/{}", kind.group, kind.version, kind.plural);
        let patch = kube::api::Patch::Merge(json!({"status": {}}));
        let request = Request::new(path)
            .patch_subresource("status", "any", &kube::api::PatchParams::default(), &patch)
            .unwrap();
        let kube::Error::Api(status) = client.request::<Value>(request).await.unwrap_err() else {
            panic!("{}", kind.plural)
        };
        assert_eq!(status.code, 404, "{}: {}", kind.plural, status.message);
    }
    let shape = Shape {
        image: Some("iso".to_owned()),
        ..Shape::default()
    };
    world::install(&client, &shape.objects()).await.unwrap();
    let image = || {
        server
            .store()
            .get("harvesterhci.io", "virtualmachineimages", "harvester-system", "iso")
            .unwrap()
    };
    assert_eq!(image()["metadata"]["generation"], 1);
    let path = "/apis/harvesterhci.io/v1beta1/namespaces/harvester-system/virtualmachineimages";
    let patch = kube::api::Patch::Merge(json!({"status": {"progress": 42}}));
    let request = Request::new(path)
        .patch("iso", &kube::api::PatchParams::default(), &patch)
        .unwrap();
    client.request::<Value>(request).await.unwrap();
    assert_eq!(image()["status"]["progress"], 42);
    assert_eq!(image()["metadata"]["generation"], 2);
}
