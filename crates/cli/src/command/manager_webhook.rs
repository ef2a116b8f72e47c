//! The flags of the admission webhooks.

use std::{path::PathBuf, sync::Arc};

use anyhow::Context;
use manager::{
    tls::{Clients, Presented, files::Files, managed::Managed},
    webhook::{
        CertificateSource, WebhookConfig,
        configurations::{MUTATING_CONFIGURATION, SERVICE, VALIDATING_CONFIGURATION, service_names},
    },
};

use super::listen::listen;

/// How admission is served.
#[derive(Debug, clap::Args)]
pub(super) struct WebhookArgs {
    /// Address of the admission webhooks; 0 disables them, as ENABLE_WEBHOOKS=false does
    #[arg(long, default_value = ":9443")]
    webhook_bind_address: String,
    /// Directory with the certificate of the webhooks; without it the manager makes and renews its own
    #[arg(long)]
    webhook_cert_path: Option<PathBuf>,
    /// File of the certificate, in --webhook-cert-path
    #[arg(long, default_value = "tls.crt")]
    webhook_cert_name: String,
    /// File of the key, in --webhook-cert-path
    #[arg(long, default_value = "tls.key")]
    webhook_cert_key: String,
    /// File with certificate authorities (PEM): only API servers with a client certificate of one of them are served
    #[arg(long, value_name = "FILE")]
    webhook_client_ca: Option<PathBuf>,
    /// Prefix of the names of the webhooks' Service and configurations
    #[arg(long, env = "WEBHOOK_NAME_PREFIX", default_value = "harvester-upgrade-manager-")]
    pub(super) webhook_name_prefix: String,
}

/// The admission webhooks, unless they are disabled.
pub(super) fn config(args: &WebhookArgs, namespace: &str) -> anyhow::Result<Option<WebhookConfig>> {
    let enabled = webhooks_are_enabled(std::env::var("ENABLE_WEBHOOKS").ok().as_deref());
    if !enabled {
        return Ok(None);
    }
    let Some(listener) = listen("--webhook-bind-address", &args.webhook_bind_address)? else {
        return Ok(None);
    };
    let prefix = &args.webhook_name_prefix;
    let certificate = match &args.webhook_cert_path {
        Some(directory) => CertificateSource::Files(Files {
            certificate: directory.join(&args.webhook_cert_name),
            key: directory.join(&args.webhook_cert_key),
        }),
        None => CertificateSource::Managed(Managed {
            namespace: namespace.to_owned(),
            names: service_names(&format!("{prefix}{SERVICE}"), namespace),
            mutating: format!("{prefix}{MUTATING_CONFIGURATION}"),
            validating: format!("{prefix}{VALIDATING_CONFIGURATION}"),
        }),
    };
    let clients = match &args.webhook_client_ca {
        None => Clients::Any,
        Some(file) => {
            let failed = || format!("failed to read --webhook-client-ca {}", file.display());
            Clients::SignedBy(std::fs::read_to_string(file).with_context(failed)?)
        }
    };
    // What cannot be used is to be known now, not when the first handshake fails.
    Presented::default()
        .server_config(&clients)
        .context("failed to use --webhook-client-ca")?;
    Ok(Some(WebhookConfig {
        listener: Arc::new(listener),
        certificate,
        clients,
    }))
}

/// By ENABLE_WEBHOOKS: only the literal `false` disables them.
fn webhooks_are_enabled(value: Option<&str>) -> bool {
    value != Some("false")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_literal_false_turns_the_webhooks_off() {
        assert!(!webhooks_are_enabled(Some("false")));
        for value in [None, Some("False"), Some("0"), Some(""), Some("true")] {
            assert!(webhooks_are_enabled(value), "{value:?}");
        }
    }
}
