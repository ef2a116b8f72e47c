//! Creating a plan, held to what Harvester, CDI and KubeVirt really do (docs/world.md).

use crate::support;
use api::foreign::kubevirt::{VirtualMachine, VirtualMachineInstance};
use checks::Cluster;
use rstest::rstest;
use serde_json::{Value, json};

use crate::support::{create, healthy, named, plan, plan_with, read, upgrade_image, vmi};

fn restoring() -> api::UpgradePlan {
    plan_with(json!({"version": support::VERSION, "restoreVM": true}))
}

fn with_device() -> VirtualMachineInstance {
    vmi(
        "ml",
        json!({"domain": {"devices": {"hostDevices": [{"name": "card"}]}}}),
    )
}

#[test]
fn r41_with_restore_vm_a_vm_that_cannot_move_is_no_reason_to_refuse() {
    let mut cluster = healthy(3);
    cluster.vmis = Ok(vec![with_device()].into());
    assert_eq!(create(&plan(), &cluster).len(), 1);
    assert!(create(&restoring(), &cluster).is_empty());
    let refused = plan_with(json!({"version": support::VERSION, "restoreVM": false}));
    let refused = create(&refused, &cluster).concat();
    assert!(
        refused.contains("default/ml") && refused.contains("spec.restoreVM"),
        "{refused}"
    );
}

#[test]
fn r41_with_restore_vm_the_checks_of_vms_read_nothing() {
    let cluster = Cluster {
        vms: Err("no route".into()),
        vmis: Err("no route".into()),
        ..healthy(3)
    };
    assert!(create(&restoring(), &cluster).is_empty());
    assert!(!create(&plan(), &cluster).is_empty());
}

fn vm(name: &str, volumes: Value, status: Value) -> VirtualMachine {
    let template = json!({"spec": {"volumes": volumes}});
    named(
        "default",
        name,
        json!({"spec": {"template": template}, "status": status}),
    )
}

fn hot(name: &str) -> Value {
    json!({"name": name, "persistentVolumeClaim": {"claimName": name, "hotpluggable": true}})
}

#[test]
fn r42_vms_with_unserved_hotplug_requests_are_all_named() {
    let mut cluster = healthy(3);
    let asking = json!({"volumeRequests": [{"addVolumeOptions": {"name": "extra"}}]});
    cluster.vms = Ok(vec![
        vm("web", json!([]), asking.clone()),
        vm("calm", json!([]), json!({"volumeRequests": []})),
        vm("db", json!([]), asking),
    ]
    .into());
    let refused = create(&plan(), &cluster);
    assert_eq!(refused.len(), 1, "{refused:?}");
    for part in [
        "status.volumeRequests",
        "default/web, default/db",
        "stop and start them",
    ] {
        assert!(refused[0].contains(part), "{refused:?}");
    }
    assert!(!refused[0].contains("calm"), "{refused:?}");
    assert!(
        create(&restoring(), &cluster).is_empty(),
        "they are stopped anyway (R-41)"
    );
    let one = Cluster {
        nodes: healthy(1).nodes,
        machines: healthy(1).machines,
        ..cluster
    };
    assert!(create(&plan(), &one).is_empty(), "they are stopped anyway");
}

#[test]
fn r42_running_vms_with_volumes_that_the_vm_does_not_have_are_all_named() {
    let mut cluster = healthy(3);
    let data_volume = json!({"name": "dv", "dataVolume": {"name": "dv", "hotpluggable": true}});
    cluster.vms = Ok(vec![
        vm("web", json!([{"name": "root"}]), json!({})),
        vm("kept", json!([hot("data")]), json!({})),
        vm("db", json!(null), json!({})),
    ]
    .into());
    cluster.vmis = Ok(vec![
        vmi("web", json!({"volumes": [{"name": "root"}, hot("a"), hot("b")]})),
        vmi(
            "kept",
            json!({"volumes": [hot("data"), {"name": "seed", "cloudInitNoCloud": {}}]}),
        ),
        vmi("db", json!({"volumes": [data_volume]})),
        vmi("alone", json!({"volumes": [hot("a")]})),
    ]
    .into());
    let refused = create(&plan(), &cluster);
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(
        refused[0].contains("default/web (volume a, b), default/db (volume dv);"),
        "{refused:?}"
    );
    assert!(create(&restoring(), &cluster).is_empty());

    let mut ended = vmi("web", json!({"volumes": [hot("a")]}));
    ended.status.phase = Some("Succeeded".to_owned());
    cluster.vmis = Ok(vec![ended].into());
    assert!(create(&plan(), &cluster).is_empty(), "it does not run");
}

#[rstest]
#[case::marked_for_cdi(json!({"backend": "cdi"}), Some("True"), None)]
#[case::backing_image(json!({"backend": "backingimage"}), Some("True"), Some("no PersistentVolumeClaim of its name"))]
#[case::backend_left_out_is_a_backing_image(json!({}), Some("True"), Some("no PersistentVolumeClaim of its name"))]
#[case::without_the_annotation(json!({"backend": "cdi"}), None, Some("ReadWriteMany, Filesystem"))]
#[case::annotation_of_another_value(json!({"backend": "cdi"}), Some("true"), Some("ReadWriteMany, Filesystem"))]
fn r17_an_image_whose_volume_the_repository_cannot_mount_is_refused_with_reason_and_remedy(
    #[case] spec: Value,
    #[case] marked: Option<&str>,
    #[case] refused: Option<&str>,
) {
    let mut image = upgrade_image("iso");
    image.spec = read(spec);
    image.metadata.annotations =
        marked.map(|value| [("harvesterhci.io/os-upgrade-image".to_owned(), value.to_owned())].into());
    let mut cluster = healthy(1);
    cluster.images = Ok(vec![image]);
    let errors = create(&plan_with(json!({"image": "iso"})), &cluster);
    let Some(refused) = refused else {
        assert!(errors.is_empty(), "{errors:?}");
        return;
    };
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(
        errors[0].starts_with("spec.image: Invalid value: \"iso\": "),
        "{errors:?}"
    );
    for part in [refused, "create another image", "os-upgrade-image: \"True\""] {
        assert!(errors[0].contains(part), "{errors:?}");
    }
}

#[rstest]
#[case(json!({}), false)]
#[case(json!({"onMigrationFailure": "Block"}), false)]
#[case(json!({"onMigrationFailure": "Retry"}), false)]
#[case(json!({"onMigrationFailure": "Stop"}), true)]
#[case(json!({"onMigrationFailure": "Block", "restoreVM": true}), true)]
fn r18_a_vm_that_only_kubevirt_will_not_migrate_is_refused_unless_the_plan_says_what_to_do_with_it(
    #[case] mut spec: Value,
    #[case] allowed: bool,
) {
    spec["version"] = json!(support::VERSION);
    let mut denied = vmi("db", json!({}));
    denied.status.conditions = read(json!([{"type": "LiveMigratable", "status": "False"}]));
    let mut cluster = healthy(3);
    cluster.vmis = Ok(vec![denied].into());
    let errors = create(&plan_with(spec), &cluster);
    assert_eq!(errors.is_empty(), allowed, "{errors:?}");
    cluster.vmis = Ok(vec![with_device()].into());
    let stopping = plan_with(json!({"version": support::VERSION, "onMigrationFailure": "Stop"}));
    assert!(
        !create(&stopping, &cluster).is_empty(),
        "a device of its node is no failure"
    );
}
