//! The certificate that managers make, share and renew by themselves: in a Secret, with its authority in the webhook
//! configurations.
//!
//! Any replica may renew it, leader or not, since all serve. The order makes that safe: a new certificate goes into
//! the Secret first, by resourceVersion, so that of two replicas one wins; then its authority into the configurations,
//! in addition to the previous one; then into handshakes. Replicas that have not looked yet present the one before and are still
//! trusted.

use std::{collections::BTreeMap, time::Duration};

use clock::Clock;
use jiff::Timestamp;
use k8s_openapi::{ByteString, api::core::v1::Secret};
use kube::{
    Api, Client, ResourceExt,
    api::{ApiResource, DynamicObject, GroupVersionKind, ObjectMeta, Patch, PatchParams, PostParams},
};
use serde_json::{Value, json};

use super::{
    Certificate, Pem, Presented, TlsError,
    mint::{LIFE, mint},
};

/// The Secret, by the name that existing charts give it.
pub const SECRET: &str = "webhook-server-cert";
const CERTIFICATE: &str = "tls.crt";
const KEY: &str = "tls.key";
const AUTHORITY: &str = "ca.crt";

/// How often Secret and configurations are looked at: others may have renewed the one or reset the other.
const LOOK_AGAIN: Duration = Duration::from_secs(30);
/// How soon after another replica was faster; after errors it doubles up to [`LOOK_AGAIN`].
const RETRY: Duration = Duration::from_secs(2);

/// What the certificate is for.
#[derive(Clone, Debug)]
pub struct Managed {
    /// Namespace of the Secret.
    pub namespace: String,
    /// DNS names; the first is the one the API server asks for.
    pub names: Vec<String>,
    /// Name of the MutatingWebhookConfiguration that gets the authority.
    pub mutating: String,
    /// Name of the ValidatingWebhookConfiguration that gets the authority.
    pub validating: String,
}

/// Why the certificate could not be kept.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The API server refused or did not answer.
    #[error("failed to {doing}: {source}")]
    Kube {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// A certificate could not be made or read.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

impl KeepError {
    /// Another replica was faster: a reason to retry, not an error.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Kube { source, .. } if matches!(source.as_ref(), kube::Error::Api(s) if s.code == 409))
    }
}

fn failed(doing: impl Into<String>) -> impl FnOnce(kube::Error) -> KeepError {
    let doing = doing.into();
    |source| KeepError::Kube {
        doing,
        source: Box::new(source),
    }
}

/// What a Secret holds.
struct Stored {
    certificate: Certificate,
    authorities: String,
}

/// What to do about the certificate that is there.
enum Judgement {
    /// Present it.
    Good(Stored),
    /// It is good, but not for long: make another and keep trusting this one's authority.
    Due { authorities: String },
    /// There is none that clients would accept.
    Bad(TlsError),
}

/// Keeps the certificate.
#[derive(Clone)]
pub struct Keeper {
    client: Client,
    clock: Clock,
    managed: Managed,
    presented: Presented,
}

impl Keeper {
    /// Presents nothing before the first look.
    #[must_use]
    pub fn new(client: Client, clock: Clock, managed: Managed, presented: Presented) -> Self {
        Self {
            client,
            clock,
            managed,
            presented,
        }
    }

    /// Looks again and again.
    pub async fn run(self) {
        let mut longer = RETRY;
        loop {
            let pause = match self.look().await {
                Ok(due) => {
                    longer = RETRY;
                    let left = Duration::try_from(due.duration_since(self.clock.now())).unwrap_or(RETRY);
                    left.clamp(RETRY, LOOK_AGAIN)
                }
                Err(error) if error.is_conflict() => {
                    tracing::debug!(%error, "another client wrote it first; reconciling again");
                    RETRY
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to keep the webhook certificate; trying again");
                    longer = (longer * 2).min(LOOK_AGAIN);
                    longer
                }
            };
            self.clock.sleep(pause).await;
        }
    }

    /// Makes or renews the certificate if needed, lets the API server trust it, presents it; returns when it is due.
    ///
    /// # Errors
    /// The API server refused or did not answer; or another replica was faster (retry).
    pub async fn look(&self) -> Result<Timestamp, KeepError> {
        // Configurations are read before the Secret. One that has another authority than the Secret is then behind
        // it, never ahead: a renewal writes the Secret first.
        let configurations = self.configurations().await?;
        let stored = self.stored().await?;
        let trusted = self.let_trust(&configurations, &stored.authorities).await;
        if trusted.is_ok() || self.presented.current().is_none() {
            self.present(&stored);
        }
        trusted?;
        Ok(stored.certificate.due())
    }

    fn present(&self, stored: &Stored) {
        let new = &stored.certificate.key;
        if self.presented.current().is_some_and(|now| now.cert == new.cert) {
            return;
        }
        tracing::info!(ends = %stored.certificate.ends, "presenting a webhook certificate");
        self.presented.replace(&stored.certificate);
    }

    /// What the Secret holds, after making or renewing that if needed.
    async fn stored(&self) -> Result<Stored, KeepError> {
        let secrets: Api<Secret> = Api::namespaced(self.client.clone(), &self.managed.namespace);
        let found = secrets.get_opt(SECRET).await;
        let found = found.map_err(failed(format!("read Secret {SECRET}")))?;
        let now = self.clock.now();
        let authorities_before = match judge(found.as_ref(), &self.managed.names, now) {
            Judgement::Good(stored) => return Ok(stored),
            Judgement::Due { authorities } => authorities,
            Judgement::Bad(error) => {
                if found.is_some() {
                    tracing::warn!(%error, "the stored webhook certificate is of no use; making another");
                }
                String::new()
            }
        };
        let minted = mint(&self.managed.names, now, LIFE)?;
        // Of those trusted before, only the newest may still be presented by another replica.
        let authorities = format!("{}{}", minted.authority, first_certificate(&authorities_before));
        let stored = Stored {
            certificate: Certificate::read(&minted.pem)?,
            authorities: authorities.clone(),
        };
        let data = [
            (CERTIFICATE, minted.pem.chain),
            (KEY, minted.pem.key),
            (AUTHORITY, authorities),
        ];
        let data = data.map(|(key, text)| (key.to_owned(), ByteString(text.into_bytes())));
        write(&secrets, found, BTreeMap::from(data)).await?;
        tracing::info!(ends = %stored.certificate.ends, "made a webhook certificate");
        Ok(stored)
    }

    /// Both configurations, as far as they exist.
    async fn configurations(&self) -> Result<Vec<(Api<DynamicObject>, DynamicObject)>, KeepError> {
        let mut found = Vec::new();
        for (kind, name) in [
            ("MutatingWebhookConfiguration", &self.managed.mutating),
            ("ValidatingWebhookConfiguration", &self.managed.validating),
        ] {
            let kind = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
            let api: Api<DynamicObject> = Api::all_with(self.client.clone(), &ApiResource::from_gvk(&kind));
            let configuration = api.get_opt(name).await;
            match configuration.map_err(failed(format!("read {} {name}", kind.kind)))? {
                Some(configuration) => found.push((api, configuration)),
                None => tracing::debug!(name, "there is no such webhook configuration"),
            }
        }
        Ok(found)
    }

    /// Puts the authorities into the configurations that have others.
    async fn let_trust(
        &self,
        configurations: &[(Api<DynamicObject>, DynamicObject)],
        authorities: &str,
    ) -> Result<(), KeepError> {
        for (api, configuration) in configurations {
            let Some(patch) = trusting(configuration, authorities) else {
                continue;
            };
            let name = configuration.name_any();
            let patched = api.patch(&name, &PatchParams::default(), &Patch::Merge(patch)).await;
            patched.map_err(failed(format!("patch the caBundle of webhook configuration {name}")))?;
            tracing::info!(name, "the API server trusts the webhook certificate");
        }
        Ok(())
    }
}

/// Creates or replaces the Secret; of two that try, one is refused.
async fn write(
    secrets: &Api<Secret>,
    found: Option<Secret>,
    data: BTreeMap<String, ByteString>,
) -> Result<(), KeepError> {
    let written = match found {
        None => {
            let secret = Secret {
                metadata: ObjectMeta {
                    name: Some(SECRET.to_owned()),
                    ..ObjectMeta::default()
                },
                type_: Some("kubernetes.io/tls".to_owned()),
                data: Some(data),
                ..Secret::default()
            };
            secrets.create(&PostParams::default(), &secret).await
        }
        Some(mut secret) => {
            secret.data = Some(data);
            secrets.replace(SECRET, &PostParams::default(), &secret).await
        }
    };
    written.map_err(failed(format!("write Secret {SECRET}")))?;
    Ok(())
}

fn judge(secret: Option<&Secret>, names: &[String], now: Timestamp) -> Judgement {
    let data = secret.and_then(|secret| secret.data.as_ref());
    let text = |key: &str| {
        let bytes = data.and_then(|data| data.get(key));
        bytes
            .map(|bytes| String::from_utf8_lossy(&bytes.0).into_owned())
            .unwrap_or_default()
    };
    let authorities = text(AUTHORITY);
    let pem = Pem {
        chain: text(CERTIFICATE),
        key: text(KEY),
    };
    let certificate = match Certificate::read(&pem) {
        Ok(certificate) => certificate,
        Err(error) => return Judgement::Bad(error),
    };
    // Only the first name is asked for; a certificate that was made elsewhere need not have the others.
    for name in names.iter().take(1) {
        if let Err(error) = certificate.verify(&authorities, name, now) {
            return Judgement::Bad(error);
        }
    }
    if now >= certificate.due() {
        return Judgement::Due { authorities };
    }
    Judgement::Good(Stored {
        certificate,
        authorities,
    })
}

/// The first of several certificates, with what ends it.
fn first_certificate(text: &str) -> &str {
    const END: &str = "-----END CERTIFICATE-----";
    match text.find(END) {
        Some(at) => text.get(..at + END.len()).unwrap_or_default(),
        None => "",
    }
}

/// The patch that makes a configuration trust the authorities, if it does not yet. It names the version it was made
/// for, so that it cannot undo what another client wrote since.
fn trusting(configuration: &DynamicObject, authorities: &str) -> Option<Value> {
    let bundle = json!(ByteString(authorities.as_bytes().to_vec()));
    let mut webhooks = configuration.data.get("webhooks")?.as_array()?.clone();
    let mut changed = false;
    for webhook in &mut webhooks {
        let config = webhook.get_mut("clientConfig").and_then(Value::as_object_mut)?;
        changed |= config.insert("caBundle".to_owned(), bundle.clone()).as_ref() != Some(&bundle);
    }
    changed.then(|| {
        json!({
            "metadata": {"resourceVersion": configuration.resource_version()},
            "webhooks": webhooks,
        })
    })
}
