//! Who Helm is: an account of its own, since Rancher's chart needs more rights than all other steps together.
//!
//! The program asks for a token each time Helm is run; it lasts a little longer than Helm may run, and is in a file that only
//! its owner reads and that is removed afterwards.

use base64::{Engine, prelude::BASE64_STANDARD};
use k8s_openapi::api::{
    authentication::v1::{TokenRequest, TokenRequestSpec},
    core::v1::ServiceAccount,
};
use kube::{Api, Client, Config, api::PostParams};
use serde_json::{Value, json};

use program::error::{Error, Result};

/// How long a token lasts.
const TOKEN_SECONDS: i64 = 30 * 60;

/// The account that Helm is run as.
pub struct HelmAccount {
    client: Client,
    config: Config,
    namespace: String,
    name: String,
}

impl HelmAccount {
    /// An account in a namespace of the cluster of `config`; `client` may ask for its tokens.
    #[must_use]
    pub fn new(client: Client, config: Config, namespace: &str, name: &str) -> Self {
        Self {
            client,
            config,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// A kubeconfig with a new token.
    ///
    /// # Errors
    /// There is no such account, or no token for it.
    pub(super) async fn kubeconfig(&self) -> Result<String> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), &self.namespace);
        let request = TokenRequest {
            spec: TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            },
            ..TokenRequest::default()
        };
        let answer = accounts
            .create_token_request(&self.name, &PostParams::default(), &request)
            .await;
        let answer = answer.map_err(|error| {
            let account = format!("ServiceAccount {}/{}", self.namespace, self.name);
            Error::api(
                format!("get a token of {account} for Helm; the chart of this release has that account"),
                error,
            )
        })?;
        let token = answer.status.map(|status| status.token).unwrap_or_default();
        Ok(kubeconfig(&self.config, &token).to_string())
    }
}

/// A kubeconfig for the cluster of `config`, with a token. JSON is YAML.
fn kubeconfig(config: &Config, token: &str) -> Value {
    let mut cluster = json!({"server": config.cluster_url.to_string()});
    if let Some(authorities) = &config.root_cert {
        let pem: String = authorities.iter().map(|der| pem(der)).collect();
        cluster["certificate-authority-data"] = json!(BASE64_STANDARD.encode(pem));
    }
    if config.accept_invalid_certs {
        cluster["insecure-skip-tls-verify"] = json!(true);
    }
    if let Some(name) = &config.tls_server_name {
        cluster["tls-server-name"] = json!(name);
    }
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "helm",
        "clusters": [{"name": "helm", "cluster": cluster}],
        "users": [{"name": "helm", "user": {"token": token}}],
        "contexts": [{"name": "helm", "context": {"cluster": "helm", "user": "helm"}}],
    })
}

fn pem(der: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(der);
    let lines = text.as_bytes().chunks(64).map(|line| String::from_utf8_lossy(line));
    let lines: Vec<_> = lines.collect();
    format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kubeconfig_names_the_cluster_its_authority_and_the_token() {
        let mut config = Config::new("https://10.53.0.1/".parse().unwrap());
        config.root_cert = Some(vec![vec![0; 60]]);
        let made = kubeconfig(&config, "secret");
        assert_eq!(made["clusters"][0]["cluster"]["server"], "https://10.53.0.1/");
        assert_eq!(made["users"][0]["user"]["token"], "secret");
        let authority = made["clusters"][0]["cluster"]["certificate-authority-data"].as_str();
        let authority = BASE64_STANDARD.decode(authority.unwrap()).unwrap();
        let authority = String::from_utf8(authority).unwrap();
        assert_eq!(authority.lines().count(), 4, "{authority}");
        assert!(authority.ends_with("\n-----END CERTIFICATE-----\n"), "{authority}");
    }
}
