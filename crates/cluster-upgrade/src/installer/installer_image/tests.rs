//! The installer, with an archive and a Helm of these tests.

use std::os::unix::fs::PermissionsExt as _;

use jiff::Timestamp;
use release::bundle::Archive;
use serde_json::json;

use crate::installer::image_archive::tests::{config_of, tar_of};
use program::{board::NoBoard, report::Reporter};

use super::*;

/// A release whose only archive is a file of this test.
struct OneArchive(PathBuf);

impl ReleaseFiles for OneArchive {
    fn text<'a>(&'a self, path: &'a str) -> BoxFuture<'a, Result<String>> {
        Box::pin(std::future::ready(Err(Error::Permanent(path.to_owned()))))
    }

    fn save<'a>(
        &'a self,
        _: StepContext<'a>,
        archive: &'a Archive,
        folder: &'a Path,
    ) -> BoxFuture<'a, Result<PathBuf>> {
        let to = folder.join(archive.archive.file_name());
        let copied = std::fs::copy(&self.0, &to).map(|_| to.clone());
        Box::pin(std::future::ready(
            copied.map_err(|error| Error::file("write", to, error)),
        ))
    }
}

/// An installer whose Helm writes down its arguments and exits with the given code.
fn installer(folder: &Path, script: &str) -> InstallerImage {
    let layer = tar_of(&[
        ("helm", script.as_bytes()),
        ("rancher-2.14.0.tgz", b"chart"),
        ("run.sh", b""),
    ]);
    let (config, content) = config_of(&[&layer]);
    let tags = [format!("{IMAGE}:v2.14.0")];
    let manifest = json!([{"Config": config, "RepoTags": tags, "Layers": ["l"]}]).to_string();
    let archive = tar_of(&[
        ("l", &layer),
        (&config, &content),
        ("manifest.json", manifest.as_bytes()),
    ]);
    let file = folder.join("release.tar.zst");
    std::fs::write(&file, zstd::encode_all(archive.as_slice(), 1).unwrap()).unwrap();
    InstallerImage::new(Arc::new(OneArchive(file)), folder.join("work"), Clock::system())
}

fn bundle_of_one() -> Bundle {
    bundle::parse("images:\n  agent:\n  - list: /a.txt\n    archive: /a.tar.zst\n").unwrap()
}

#[tokio::test]
async fn helm_comes_out_of_the_image_and_is_run() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let script = format!("#!/bin/sh\necho \"$@\" >> {}\n", log.display());
    let installer = installer(folder.path(), &script);
    let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
    let ctx = StepContext {
        report: &report,
        deadline: Timestamp::MAX,
        limit: Duration::MAX,
    };
    installer.prepare(ctx, "v2.14.0", &bundle_of_one()).await.unwrap();
    // What is unpacked is not unpacked again.
    let helm = folder.path().join("work/rancher/helm");
    assert_eq!(std::fs::metadata(&helm).unwrap().permissions().mode() & 0o777, 0o755);
    installer.prepare(ctx, "v2.14.0", &Bundle::default()).await.unwrap();

    let values = json!({"image": {"tag": "v2.14.0"}});
    installer
        .upgrade_rancher("cattle-system", "rancher", &values)
        .await
        .unwrap();
    installer.roll_back("cattle-fleet-system", "fleet", 3).await.unwrap();
    let work = folder.path().join("work");
    let work = work.display();
    assert_eq!(
        std::fs::read_to_string(log).unwrap(),
        format!(
            "upgrade rancher {work}/rancher/rancher-2.14.0.tgz --namespace cattle-system --values \
             {work}/rancher-values.json --wait --timeout 20m\n\
             rollback fleet 3 --namespace cattle-fleet-system --wait --timeout 20m\n"
        )
    );
    let written = std::fs::read_to_string(folder.path().join("work/rancher-values.json")).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&written).unwrap(), values);
    assert!(!folder.path().join("work/a.tar.zst").exists());
}

#[tokio::test]
async fn what_helm_said_last_is_reported() {
    let folder = tempfile::tempdir().unwrap();
    let installer = installer(
        folder.path(),
        "#!/bin/sh\necho 'another operation is in progress' >&2\nexit 1\n",
    );
    let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
    let ctx = StepContext {
        report: &report,
        deadline: Timestamp::MAX,
        limit: Duration::MAX,
    };
    installer.prepare(ctx, "v2.14.0", &bundle_of_one()).await.unwrap();
    let error = installer.roll_back("cattle-system", "rancher", 1).await.unwrap_err();
    assert!(error.is_transient());
    assert!(
        error.to_string().ends_with("another operation is in progress"),
        "{error}"
    );
}

#[tokio::test]
async fn s15_what_rancher_is_given_is_the_owners_alone_and_helm_does_not_print_it() {
    let folder = tempfile::tempdir().unwrap();
    // A Helm that repeats what it was given, as some of its errors do.
    let installer = installer(folder.path(), "#!/bin/sh\ncat \"$7\" >&2\nexit 1\n");
    let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
    let ctx = StepContext {
        report: &report,
        deadline: Timestamp::MAX,
        limit: Duration::MAX,
    };
    installer.prepare(ctx, "v2.14.0", &bundle_of_one()).await.unwrap();
    let file = folder.path().join("work/rancher-values.json");
    std::fs::write(&file, "left behind").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let values = json!({"bootstrapPassword": "hunter2-hunter2", "hostname": "rancher.example"});
    let upgraded = installer.upgrade_rancher("cattle-system", "rancher", &values).await;
    let error = upgraded.unwrap_err().to_string();
    assert!(error.contains("rancher.example"), "Helm said nothing: {error}");
    assert!(!error.contains("hunter2"), "{error}");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn an_image_that_is_nowhere_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let installer = installer(folder.path(), "");
    let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
    let ctx = StepContext {
        report: &report,
        deadline: Timestamp::MAX,
        limit: Duration::MAX,
    };
    let error = installer
        .prepare(ctx, "v2.15.0", &bundle_of_one())
        .await
        .unwrap_err()
        .to_string();
    assert_eq!(
        error,
        "no archive of the release contains the image rancher/system-agent-installer-rancher:v2.15.0"
    );
}

/// A Helm that keeps the kubeconfig that it is given, and ends.
async fn kubeconfig_of_helm(with_rule: bool) -> Result<(Value, bool)> {
    use apiserver::{ApiServer, Config, Identity};
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let script = format!(
        "#!/bin/sh\nstat -c %a \"$KUBECONFIG\" >&2\ncp \"$KUBECONFIG\" {}\n",
        seen.display()
    );
    let server = ApiServer::new(Config {
        enforce_rbac: true,
        ..Config::new(Arc::new(|| Clock::system().now()))
    });
    let namespace = |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let places = [
        "harvester-system",
        "cattle-system",
        "cattle-fleet-system",
        "cattle-fleet-local-system",
        "fleet-local",
        "longhorn-system",
    ];
    let accounts = manager::rbac::accounts("p-", "harvester-system");
    for mut object in places.map(namespace).into_iter().chain(accounts) {
        let kind = object["kind"].as_str().unwrap().to_owned();
        let (group, plural) = match kind.as_str() {
            "Namespace" => ("api/v1".to_owned(), "namespaces".to_owned()),
            "ServiceAccount" => ("api/v1".to_owned(), "serviceaccounts".to_owned()),
            kind => (
                "apis/rbac.authorization.k8s.io/v1".to_owned(),
                format!("{}s", kind.to_lowercase()),
            ),
        };
        if !with_rule && object["metadata"]["name"] == "p-cluster-upgrade-token-role" && kind == "Role" {
            object["rules"] = json!([]);
        }
        let path = match object["metadata"]["namespace"].as_str() {
            Some(namespace) => format!("/{group}/namespaces/{namespace}/{plural}"),
            None => format!("/{group}/{plural}"),
        };
        let request = http::Request::post(path).header("content-type", "application/json");
        let request = request.body(object.to_string().into()).unwrap();
        let answer = server.handle(&Identity::admin(), request).await;
        assert!(answer.status().is_success(), "{object}: {}", answer.status());
    }
    let client = server.client_as(Identity::service_account("harvester-system", "p-cluster-upgrade"));
    let config = kube::Config::new("https://10.53.0.1".parse().unwrap());
    let account = super::HelmAccount::new(client, config, "harvester-system", "p-rancher-installer");
    let installer = installer(folder.path(), &script).as_account(Some(account));
    let report = Reporter::new(Clock::system(), Arc::new(NoBoard));
    let ctx = StepContext {
        report: &report,
        deadline: Timestamp::MAX,
        limit: Duration::MAX,
    };
    installer.prepare(ctx, "v2.14.0", &bundle_of_one()).await?;
    installer.roll_back("cattle-system", "rancher", 1).await?;
    let kubeconfig = serde_json::from_str(&std::fs::read_to_string(seen).unwrap()).unwrap();
    let left = folder.path().join("work/helm-kubeconfig.json").exists();
    Ok((kubeconfig, left))
}

#[tokio::test]
async fn s06_helm_is_an_account_of_its_own_and_its_token_is_gone_with_it() {
    let (kubeconfig, left) = kubeconfig_of_helm(true).await.unwrap();
    let token = kubeconfig["users"][0]["user"]["token"].as_str().unwrap();
    assert!(token.contains("p-rancher-installer"), "{token}");
    assert!(!left, "the token is still there");
    // The right to ask for it is needed, and its account is named where it is missing.
    let error = kubeconfig_of_helm(false).await.unwrap_err().to_string();
    assert!(
        error.contains("ServiceAccount harvester-system/p-rancher-installer"),
        "{error}"
    );
}
