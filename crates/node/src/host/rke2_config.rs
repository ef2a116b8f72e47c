//! RKE2's configuration on a node: small files that each say one thing. The texts are pure.
//!
//! A file of which users may have their own version is only written when it is absent, and corrected only when it is,
//! to the letter, one that this toolkit or its predecessor wrote for another number of processors.

use serde::Deserialize;

use program::error::Result;

use super::{
    HostRoot,
    tools::{Call, HostTools, must},
};

/// The folder of RKE2's configuration.
const FOLDER: &str = "/etc/rancher/rke2/config.yaml.d";
/// A manifest that RKE2 would apply again, of a network plugin that is no longer configured this way.
const CANAL_CONFIG: &str = "/var/lib/rancher/rke2/server/manifests/rke2-canal-config.yaml";
/// Pods that a node of Harvester takes.
const MAX_PODS: u32 = 200;
/// The mode of configuration files.
const MODE: u32 = 0o600;
/// No machine has more processors than this; files for more are not ours.
const MOST_CORES: u32 = 4096;
/// The first release whose RKE2 brings Traefik as ingress controller.
const TRAEFIK_SINCE: (u64, u64) = (1, 9);

fn file(name: &str) -> String {
    format!("{FOLDER}/{name}.yaml")
}

/// Takes away what would bring an outdated network configuration back.
///
/// # Errors
/// When the file cannot be removed.
pub fn remove_canal_config(root: &HostRoot) -> Result<()> {
    root.remove(CANAL_CONFIG).map(drop)
}

/// Keeps RKE2 from installing charts that Harvester brings itself.
///
/// # Errors
/// When the file cannot be written.
pub fn disable_charts(root: &HostRoot) -> Result<()> {
    let text =
        "disable:\n- rke2-snapshot-controller\n- rke2-snapshot-controller-crd\n- rke2-snapshot-validation-webhook\n";
    root.write(&file("40-disable-charts"), text.as_bytes(), MODE).map(drop)
}

/// Makes Traefik the ingress controller where the new release expects it, unless somebody chose one.
///
/// # Errors
/// When the file cannot be written.
pub fn choose_ingress(root: &HostRoot, release: &str) -> Result<()> {
    if !brings_traefik(release) {
        return Ok(());
    }
    write_if_absent(root, "99-traefik", "ingress-controller: traefik\n")
}

/// Whether a release expects Traefik. What is no version is a build of a branch, which is ahead of all releases.
fn brings_traefik(release: &str) -> bool {
    let mut numbers = release
        .trim_start_matches('v')
        .split(['.', '-', '+'])
        .map(str::parse::<u64>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= TRAEFIK_SINCE,
        _ => true,
    }
}

/// Lets a node take as many pods as Harvester needs, unless somebody chose a number.
///
/// # Errors
/// When the file cannot be written.
pub fn max_pods(root: &HostRoot) -> Result<()> {
    write_if_absent(
        root,
        "99-max-pods",
        &format!("kubelet-arg:\n- \"max-pods={MAX_PODS}\"\n"),
    )
}

/// Lets the containers of CDI use block devices without being root.
///
/// # Errors
/// When the file cannot be written.
pub fn device_permissions(root: &HostRoot) -> Result<()> {
    write_if_absent(root, "91-harvester-cdi", "nonroot-devices: true\n")
}

/// Reserves processor time for the system and for Kubernetes, by the number of processors.
///
/// # Errors
/// When that number cannot be told, or the file cannot be written.
pub async fn reserve_resources(root: &HostRoot, tools: &dyn HostTools) -> Result<()> {
    let printed = must(tools, Call::host("nproc", &[])).await?;
    let cores = printed.trim().parse().map_err(|_| {
        program::error::Error::Transient(format!("nproc printed {printed:?}, which is no number of processors"))
    })?;
    let path = file("99-z00-harvester-reserved-resources");
    let wanted = reserved_text(cores, pods_allowed(root)?);
    let there = root.read_text(&path)?;
    if there.as_deref().is_none_or(is_our_reservation) {
        root.write(&path, wanted.as_bytes(), MODE)?;
    } else {
        tracing::info!(path, "kept: a user set other values");
    }
    Ok(())
}

fn write_if_absent(root: &HostRoot, name: &str, text: &str) -> Result<()> {
    let path = file(name);
    match root.read_text(&path)? {
        None => root.write(&path, text.as_bytes(), MODE).map(drop),
        Some(there) => {
            if there != text {
                tracing::info!(path, "kept: a user set other values");
            }
            Ok(())
        }
    }
}

/// `kubelet-arg` or `kubelet-arg+` and nothing else.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct KubeletArgs {
    #[serde(alias = "kubelet-arg+", rename = "kubelet-arg")]
    args: Vec<String>,
}

fn kubelet_args(text: &str) -> Option<Vec<String>> {
    serde_saphyr::from_str::<KubeletArgs>(text).ok().map(|file| file.args)
}

/// How many pods the node takes, by the file that says so.
fn pods_allowed(root: &HostRoot) -> Result<u32> {
    let there = root.read_text(&file("99-max-pods"))?;
    let args = there.as_deref().and_then(kubelet_args).unwrap_or_default();
    let chosen = args.iter().find_map(|arg| arg.strip_prefix("max-pods=")?.parse().ok());
    Ok(chosen.unwrap_or(MAX_PODS))
}

/// A file that we, or our predecessor, wrote for some number of processors. A remark in it is somebody's own.
fn is_our_reservation(text: &str) -> bool {
    let Some(args) = kubelet_args(text).filter(|_| !text.contains('#') && text.contains("kubelet-arg+")) else {
        return false;
    };
    let ours = |cores, pods| {
        let (system, kube) = reserved(cores, pods);
        args == [system_arg(system), kube_arg(kube)]
    };
    (0..=MOST_CORES).any(|cores| ours(cores, MAX_PODS) || ours(cores, 0))
}

fn system_arg(milli: u32) -> String {
    format!("system-reserved=cpu={milli}m")
}

fn kube_arg(milli: u32) -> String {
    format!("kube-reserved=cpu={milli}m")
}

fn reserved_text(cores: u32, pods: u32) -> String {
    let (system, kube) = reserved(cores, pods);
    format!(
        "kubelet-arg+:\n- \"{}\"\n- \"{}\"\n",
        system_arg(system),
        kube_arg(kube)
    )
}

/// Thousandths of a processor for the system and for Kubernetes.
fn reserved(cores: u32, pods: u32) -> (u32, u32) {
    if cores == 0 {
        return (0, 0);
    }
    let mut all = 60;
    all += if cores > 1 { 10 } else { 0 };
    all += if cores > 2 { 10 } else { 0 };
    all += cores.saturating_sub(4) * 5 / 2;
    all += if pods > 110 { 400 } else { 0 };
    (all * 4 / 5, all * 6 / 5)
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case(0, 0, 0)]
    #[case(1, 368, 552)]
    #[case(2, 376, 564)]
    #[case(4, 384, 576)]
    #[case(5, 385, 578)]
    #[case(8, 392, 588)]
    #[case(16, 408, 612)]
    #[case(64, 504, 756)]
    #[case(128, 632, 948)]
    fn processor_time_is_reserved_by_the_number_of_processors(
        #[case] cores: u32,
        #[case] system: u32,
        #[case] kube: u32,
    ) {
        assert_eq!(reserved(cores, MAX_PODS), (system, kube));
    }

    #[rstest]
    #[case(
        "kubelet-arg+:\n- \"system-reserved=cpu=392m\"\n- \"kube-reserved=cpu=588m\"\n",
        true
    )]
    #[case("kubelet-arg+:\n  - system-reserved=cpu=408m\n  - kube-reserved=cpu=612m\n", true)]
    #[case("kubelet-arg+:\n- system-reserved=cpu=392m\n- kube-reserved=cpu=589m\n", false)]
    #[case(
        "# mine\nkubelet-arg+:\n- system-reserved=cpu=392m\n- kube-reserved=cpu=588m\n",
        false
    )]
    #[case(
        "kubelet-arg+:\n- system-reserved=cpu=392m\n- kube-reserved=cpu=588m\n- v=2\n",
        false
    )]
    #[case(
        "kubelet-arg+:\n- system-reserved=cpu=392m\n- kube-reserved=cpu=588m\nother: 1\n",
        false
    )]
    #[case("kubelet-arg:\n- system-reserved=cpu=392m\n- kube-reserved=cpu=588m\n", false)]
    #[case("not: [yaml", false)]
    #[case("", false)]
    fn only_a_file_of_ours_is_recognised(#[case] text: &str, #[case] ours: bool) {
        assert_eq!(is_our_reservation(text), ours);
    }

    #[rstest]
    #[case("v1.8.0", false)]
    #[case("v1.8.0-rc1", false)]
    #[case("v1.9.0", true)]
    #[case("v1.9.0-rc2", true)]
    #[case("v1.10.0", true)]
    #[case("v1.8-head", false)]
    #[case("v2.0.0", true)]
    #[case("master-1a2b3c-head", true)]
    fn traefik_comes_with_v1_9(#[case] release: &str, #[case] brings: bool) {
        assert_eq!(brings_traefik(release), brings);
    }
}
