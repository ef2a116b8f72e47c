//! Who reaches the servers that an installation and its upgrades open, by the network policies that are installed with them.

use serde_json::{Value, json};

use crate::packaging::{
    chart::{RELEASE, rendered, template},
    documents::Documents,
    installer::installed,
    network_rules::{Peer, Policies},
    pods,
};

const OURS: &str = "harvester-system";
/// A node as others see it that are not pods, and as a pod of another node sees it.
const NODE: &str = "192.168.7.11";
const TUNNEL: &str = "10.52.3.0";

/// Both ways of installing.
fn installations() -> impl Iterator<Item = Documents> {
    let found = [rendered(RELEASE, &[]), installed(&[])];
    let is_any = found.iter().any(Option::is_some);
    assert!(
        is_any || std::env::var_os("CI").is_none(),
        "neither helm nor kubectl is there: nothing would be looked at"
    );
    found.into_iter().flatten()
}

fn pod<'a>(namespace: &'a str, labels: &'a Value, address: &'a str) -> Peer<'a> {
    Peer {
        namespace,
        labels: Some(labels),
        address,
    }
}

fn host(address: &str) -> Peer<'_> {
    Peer {
        namespace: "",
        labels: None,
        address,
    }
}

fn manager(documents: &Documents) -> &Value {
    let deployment = documents.0.iter().find(|one| one["kind"] == "Deployment").unwrap();
    &deployment["spec"]["template"]
}

/// The ports that the containers of a pod listen on.
fn ports(template: &Value) -> Vec<u64> {
    let containers = template["spec"]["containers"].as_array().unwrap();
    let ports = containers.iter().flat_map(|one| one["ports"].as_array().unwrap());
    ports.map(|port| port["containerPort"].as_u64().unwrap()).collect()
}

#[test]
fn s09_every_port_that_we_open_is_reached_by_those_it_is_for_and_by_no_others() {
    let repository = pods::repository("toolkit").template;
    assert_eq!(ports(&repository), ports(&pods::repository("nginx").template));
    let (cluster, restore) = (pods::cluster_upgrade().template, pods::restore_vm().template);
    let (foreign, monitoring) = (json!({"app": "x"}), json!({"app.kubernetes.io/name": "prometheus"}));
    for documents in installations() {
        let policies = Policies::of(&documents);
        let template = manager(&documents);
        let ours = pod(OURS, &template["metadata"]["labels"], "10.52.0.5");
        let repo = pod(OURS, &repository["metadata"]["labels"], "10.52.1.6");
        let cluster = pod(OURS, &cluster["metadata"]["labels"], "10.52.1.7");
        let restore = pod(OURS, &restore["metadata"]["labels"], "10.52.1.8");
        let prometheus = pod("cattle-monitoring-system", &monitoring, "10.52.2.9");
        let tenant = pod("tenant-a", &foreign, "10.52.3.14");
        // With our labels, in a namespace of its own.
        let disguised = pod("tenant-a", ours.labels.unwrap(), "10.52.3.15");
        let neighbour = pod(OURS, &foreign, "10.52.3.16");
        let (node, tunnel) = (host(NODE), host(TUNNEL));
        let all = [
            &ours,
            &repo,
            &cluster,
            &restore,
            &prometheus,
            &tenant,
            &disguised,
            &neighbour,
            &node,
            &tunnel,
        ];
        let reach = |to: &Peer<'_>, port: u64| -> Vec<usize> {
            (0..all.len()).filter(|at| policies.lets(all[*at], to, port)).collect()
        };
        let place = |one: &Peer<'_>| all.iter().position(|other| other.address == one.address).unwrap();
        let sorted = |peers: &[&Peer<'_>]| {
            let mut places: Vec<usize> = peers.iter().map(|one| place(one)).collect();
            places.sort_unstable();
            places
        };
        for port in ports(template) {
            let meant: &[&Peer<'_>] = match port {
                9443 => &[&node, &tunnel],
                8443 => &[&prometheus],
                // The kubelet of its own node asks, which no policy keeps out.
                8081 => &[],
                other => panic!("nothing says who may reach port {other} of the manager"),
            };
            assert_eq!(reach(&ours, port), sorted(meant), "port {port} of the manager");
        }
        for port in ports(&repository) {
            let meant = sorted(&[&ours, &cluster, &node, &tunnel]);
            assert_eq!(reach(&repo, port), meant, "port {port} of the repository");
        }
        assert_eq!(ports(&repository).len(), 2, "without and with TLS");
        for job in [&cluster, &restore] {
            assert_eq!(reach(job, 8080), [0_usize; 0], "{:?}", job.labels);
        }
    }
}

#[test]
fn every_port_that_we_open_is_in_the_documentation() {
    let page = std::fs::read_to_string(crate::packaging::root().join("docs/security.md")).unwrap();
    let Some(documents) = installed(&[]) else { return };
    for port in [ports(manager(&documents)), ports(&pods::repository("toolkit").template)].concat() {
        let row = format!("\n| {port} | ");
        assert!(page.contains(&row), "docs/security.md says nothing of port {port}");
    }
}

#[test]
fn s09_pods_that_need_no_network_have_none_and_those_that_need_the_api_have_that() {
    let repository = pods::repository("toolkit").template;
    let [port, secure] = ports(&repository)[..] else {
        panic!("the repository serves without and with TLS")
    };
    let (cluster, restore) = (pods::cluster_upgrade().template, pods::restore_vm().template);
    let foreign = json!({"app": "x"});
    for documents in installations() {
        let policies = Policies::of(&documents);
        let repo = pod(OURS, &repository["metadata"]["labels"], "10.52.1.6");
        let cluster = pod(OURS, &cluster["metadata"]["labels"], "10.52.1.7");
        let restore = pod(OURS, &restore["metadata"]["labels"], "10.52.1.8");
        let tenant = pod("tenant-a", &foreign, "10.52.3.14");
        // The API server by its Service and by a node's address; a host outside.
        let (service, server, outside) = (host("10.53.0.1"), host(NODE), host("203.0.113.9"));
        for (from, to, port, comes_through) in [
            (&repo, &service, 443, false),
            (&repo, &server, 6443, false),
            (&repo, &outside, 80, false),
            (&restore, &service, 443, true),
            (&restore, &server, 6443, true),
            (&restore, &server, 10250, false),
            (&restore, &tenant, 8080, false),
            (&restore, &repo, port, false),
            (&cluster, &server, 6443, true),
            (&cluster, &repo, port, true),
            (&cluster, &repo, secure, true),
            (&restore, &repo, secure, false),
            (&cluster, &tenant, secure, false),
            (&cluster, &tenant, 8080, false),
            (&cluster, &outside, 80, false),
        ] {
            let found = policies.lets(from, to, port);
            assert_eq!(found, comes_through, "{:?} to {}:{port}", from.labels, to.address);
        }
    }
}

#[test]
fn s09_no_policy_is_over_a_pod_that_is_not_ours() {
    let others = [
        json!({}),
        json!({"app.kubernetes.io/name": "harvester", "app.kubernetes.io/component": "apiserver"}),
        json!({"app.kubernetes.io/name": "harvester", "app.kubernetes.io/component": "webhook-server"}),
        json!({"control-plane": "controller-manager"}),
        json!({"kubevirt.io": "virt-launcher"}),
        // What merely bears the name of a part is not of an upgrade.
        json!({"management.harvesterhci.io/upgrade-component": "repo"}),
    ];
    for documents in installations() {
        let policies = Policies::of(&documents);
        for labels in &others {
            let found = policies.selecting(&pod(OURS, labels, "10.52.1.1"));
            assert!(found.is_empty(), "{found:?} are over {labels}");
        }
        for policy in documents.0.iter().filter(|one| one["kind"] == "NetworkPolicy") {
            assert_eq!(policy["metadata"]["namespace"], OURS);
        }
    }
}

#[test]
fn s09_the_chart_and_the_installer_have_the_same_policies() {
    let (Some(chart), Some(installer)) = (rendered(RELEASE, &[]), installed(&[])) else {
        return;
    };
    let policies = |documents: &Documents, prefix: &str| -> Vec<(String, String)> {
        let policies = documents.0.iter().filter(|one| one["kind"] == "NetworkPolicy");
        let mut found: Vec<(String, String)> = policies
            .map(|one| {
                let name = one["metadata"]["name"].as_str().unwrap();
                let spec = one["spec"].to_string();
                let instance = format!("\"app.kubernetes.io/instance\":\"{RELEASE}\",");
                let spec = spec.replace(&instance, "").replace(RELEASE, "upgrade-toolkit");
                (name.strip_prefix(prefix).unwrap().to_owned(), spec)
            })
            .collect();
        found.sort();
        found
    };
    let of_chart = policies(&chart, "harvester-upgrade-manager-");
    let of_installer = policies(&installer, "upgrade-toolkit-");
    let names = |found: &[(String, String)]| -> Vec<String> { found.iter().map(|(name, _)| name.clone()).collect() };
    assert_eq!(of_chart.len(), 6);
    assert_eq!(names(&of_chart), names(&of_installer));
    for ((name, of_chart), (_, of_installer)) in of_chart.iter().zip(&of_installer) {
        // They are long; a difference is found by rendering both.
        assert!(of_chart == of_installer, "the two have another policy {name}");
    }
}

#[test]
fn policies_follow_the_values_and_can_be_left_out() {
    let Some(off) = rendered(RELEASE, &["networkPolicy.enable=false"]) else {
        return;
    };
    assert!(off.names().iter().all(|name| !name.starts_with("NetworkPolicy")));

    let names = |chart: &Documents| -> Vec<String> {
        let names = chart.names().into_iter();
        names.filter(|name| name.starts_with("NetworkPolicy")).collect()
    };
    // Health is closed also where nothing else is served.
    let bare = rendered(RELEASE, &["webhook.enable=false", "metrics.enable=false"]).unwrap();
    assert!(names(&bare).contains(&"NetworkPolicy harvester-upgrade-manager-default-deny".to_owned()));
    assert_eq!(names(&bare).len(), 4);

    let foreign = json!({"app": "x"});
    for (values, pods, nodes, tunnel) in [
        // Another network of pods, of which each node has its part.
        (vec!["networkPolicy.podCIDR=10.42.0.0/16"], false, true, true),
        (vec!["networkPolicy.podCIDR=10.42.16.0/20"], false, true, true),
        (
            vec![
                "networkPolicy.podCIDR=10.42.16.0/20",
                "networkPolicy.nodeCIDRs={172.16.0.0/12}",
            ],
            false,
            false,
            true,
        ),
        // The policy does not say which addresses are those of pods.
        (vec!["networkPolicy.podCIDR="], true, true, true),
    ] {
        let chart = rendered(RELEASE, &values).unwrap();
        let ours = pod(OURS, &manager(&chart)["metadata"]["labels"], "10.42.17.2");
        let policies = Policies::of(&chart);
        assert_eq!(
            policies.lets(&pod("t", &foreign, "10.42.18.3"), &ours, 9443),
            pods,
            "{values:?}"
        );
        assert_eq!(policies.lets(&host(NODE), &ours, 9443), nodes, "{values:?}");
        assert_eq!(policies.lets(&host("10.42.18.0"), &ours, 9443), tunnel, "{values:?}");
    }
    let elsewhere = template(RELEASE, &["webhook.port=10443", "metrics.port=10444"]).unwrap();
    let elsewhere = Documents::read(&String::from_utf8(elsewhere.stdout).unwrap());
    let ours = pod(OURS, &manager(&elsewhere)["metadata"]["labels"], "10.52.0.5");
    assert!(Policies::of(&elsewhere).lets(&host(TUNNEL), &ours, 10443));
    assert!(!Policies::of(&elsewhere).lets(&host(TUNNEL), &ours, 9443));
}
