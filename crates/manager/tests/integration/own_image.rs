//! The image that the manager finds in its own pod.

use std::sync::Arc;

use apiserver::{ApiServer, Config};
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, api::PostParams};
use manager::own_image::find;
use serde_json::json;

#[tokio::test]
async fn r04_the_manager_finds_the_image_it_runs_as_it_was_deployed() {
    let server = ApiServer::new(Config::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH)));
    let client = server.client();
    let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "harvester-system"}});
    world::install(&client, &[namespace]).await.unwrap();
    let pods: Api<Pod> = Api::namespaced(client.clone(), "harvester-system");
    let digest = format!("sha256:{}", "0123456789abcdef".repeat(4));
    for (name, image) in [
        ("tagged", "localhost:5000/me/toolkit:dev".to_owned()),
        ("pinned", format!("me/toolkit@{digest}")),
    ] {
        let pod = json!({
            "metadata": {"name": name},
            "spec": {"containers": [{"name": "proxy", "image": "other"}, {"name": "manager", "image": image}]},
        });
        let pod = serde_json::from_value(pod).unwrap();
        pods.create(&PostParams::default(), &pod).await.unwrap();
        let found = find(&client, "harvester-system", name).await.unwrap().unwrap();
        assert_eq!(found.to_string(), image);
    }
    assert!(find(&client, "harvester-system", "nobody").await.unwrap().is_none());
}
