//! How the repository of a plan is identified: by a certificate whose key only its pods have.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The certificate of the repository, recorded before its key is stored and before anything is read from it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RepositoryAccess {
    /// The certificate in PEM. The manager and the programs on the nodes accept no other.
    pub certificate: String,
    /// Name of the Secret in harvester-system that holds the certificate and its key.
    pub secret: String,
    /// A Deployment that mounts the Secret was seen, so the Secret is there. The manager may create Secrets in that
    /// namespace, not read them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub in_use: bool,
}
