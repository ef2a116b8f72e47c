//! A served cluster with a kubeconfig of its own, and kubectl to ask it with.

use std::{
    path::PathBuf,
    process::{Command, Output},
    sync::Arc,
};

use apiserver::{ApiServer, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A served cluster with a kubeconfig, and kubectl to ask it with.
pub(crate) struct Cluster {
    pub(crate) server: ApiServer,
    home: TempDir,
    runtime: tokio::runtime::Runtime,
}

fn binary() -> String {
    std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".into())
}

impl Cluster {
    pub(crate) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        // kubectl looks at its own clock: ages only make sense with the real one.
        #[allow(clippy::disallowed_methods)]
        let server = ApiServer::new(Config::new(Arc::new(jiff::Timestamp::now)));
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(server.clone().serve(listener, std::future::pending()));
        let home = tempfile::tempdir().unwrap();
        let config = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "e",
            "clusters": [{"name": "e", "cluster": {"server": format!("http://{address}")}}],
            "contexts": [{"name": "e", "context": {"cluster": "e", "user": "e"}}], "users": [{"name": "e", "user": {}}],
        });
        std::fs::write(home.path().join("config"), config.to_string()).unwrap();
        let cluster = Self { server, home, runtime };
        let definition = cluster.file("crd.yaml", contract::WIDGETS);
        cluster.ok(&["create", "-f", definition.to_str().unwrap()]);
        cluster
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.home.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command
            .args(arguments)
            .env("KUBECONFIG", self.home.path().join("config"))
            .env("HOME", self.home.path());
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments)
            .output()
            .expect("kubectl is in PATH (or KUBECTL names it)")
    }

    /// What kubectl prints when it succeeds.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        let (out, err) = (
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        );
        assert!(output.status.success(), "kubectl {arguments:?}: {err}{out}");
        out
    }

    /// What kubectl complains about when it fails.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(!output.status.success(), "kubectl {arguments:?} should have failed");
        String::from_utf8(output.stderr).unwrap()
    }

    pub(crate) fn widget(&self, name: &str) -> Option<Arc<Value>> {
        self.server.store().get("example.io", "widgets", "default", name)
    }

    /// Older kubectls cannot patch a status.
    pub(crate) fn set_status(&self, name: &str, status: &Value) {
        let request = http::Request::patch(format!("/apis/example.io/v1/namespaces/default/widgets/{name}/status"))
            .header("content-type", "application/merge-patch+json")
            .body(json!({"status": status}).to_string().into())
            .unwrap();
        let response = self
            .runtime
            .block_on(self.server.handle(&apiserver::Identity::admin(), request));
        assert_eq!(response.status(), 200);
    }

    pub(crate) fn apply(&self, name: &str, spec: &Value) -> String {
        let object = json!({"apiVersion": "example.io/v1", "kind": "Widget", "metadata": {"name": name}, "spec": spec});
        let path = self.file(&format!("{name}.json"), &object.to_string());
        self.ok(&["apply", "-f", path.to_str().unwrap()])
    }
}
