//! The accounts of Jobs and Plans. Without its account no pod of a Job is created, and only an event shows it: a
//! manager that was updated without its chart would wait for ever.

use std::sync::PoisonError;

use api::names;
use k8s_openapi::api::core::v1::ServiceAccount;

use super::{ActError, Actor, failed};

impl Actor {
    /// Looks whether the accounts that ship are there, each until it was found. Those that users chose are theirs to look
    /// after: the manager may not read them.
    pub(super) async fn need_accounts(
        &self,
        object: &str,
        namespace: &str,
        accounts: &[String],
    ) -> Result<(), ActError> {
        let shipped = accounts
            .iter()
            .filter(|name| self.settings.accounts.ships(namespace, name));
        for name in shipped {
            let key = (namespace.to_owned(), name.clone());
            let known = || self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
            if known().contains(&key) {
                continue;
            }
            let account = format!("{namespace}/{name}");
            let why = match self.in_namespace::<ServiceAccount>(namespace).get(name).await {
                Ok(_) => {
                    known().insert(key);
                    continue;
                }
                Err(kube::Error::Api(status)) if status.is_not_found() => "does not exist",
                Err(kube::Error::Api(status)) if status.is_forbidden() => {
                    "may not be read by this manager, whose roles are those of another release"
                }
                Err(source) => return Err(failed(format!("read ServiceAccount {account}"), source)),
            };
            let flag = match namespace {
                names::CATTLE_NAMESPACE => "--plan-service-account",
                _ => "--job-service-account",
            };
            return Err(ActError::NoAccount {
                object: object.to_owned(),
                account,
                why: why.to_owned(),
                flag,
            });
        }
        Ok(())
    }
}
