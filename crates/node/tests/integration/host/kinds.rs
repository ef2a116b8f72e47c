//! A kind that the API server does not serve is not an empty cluster: while definitions are replaced nothing is drained.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{
    Api,
    api::{DeleteParams, PostParams},
};
use node::{limits::Limits, pre_drain::steps};
use program::step;
use rstest::rstest;

use crate::host::programs::Cluster;

#[rstest]
#[case::volumes("volumes.longhorn.io", "Volume of longhorn.io")]
#[case::engines("engines.longhorn.io", "Engine of longhorn.io")]
#[case::replicas("replicas.longhorn.io", "Replica of longhorn.io")]
#[case::migrations(
    "virtualmachineinstancemigrations.kubevirt.io",
    "VirtualMachineInstanceMigration of kubevirt.io"
)]
#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_served_is_waited_for_by_name_and_never_taken_for_nothing(
    #[case] definition: &str,
    #[case] kind: &str,
) {
    let cluster = Cluster::new(3).await;
    let definitions: Api<CustomResourceDefinition> = cluster.all();
    let mut known = definitions.get(definition).await.unwrap();
    definitions.delete(definition, &DeleteParams::default()).await.unwrap();

    let limits = Limits {
        volumes: Duration::from_mins(10),
        vms: Duration::from_mins(10),
        ..Limits::default()
    };
    let ended = step::run_all(&cluster.begin(), &steps(&limits), &cluster.harness.reporter()).await;
    let error = ended.unwrap_err().to_string();
    assert!(
        error.contains(&format!("the API server does not serve the kind {kind}")),
        "{error}"
    );

    known.metadata.resource_version = None;
    let back = async {
        cluster.until_waiting_for(kind).await;
        definitions.create(&PostParams::default(), &known).await.unwrap();
    };
    let (ended, ()) = cluster.run_while(steps, back).await;
    ended.unwrap();
}
