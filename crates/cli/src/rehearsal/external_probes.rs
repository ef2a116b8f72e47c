//! The manager's view of the outside, answered by the simulated world.

use std::sync::atomic::{AtomicU64, Ordering};

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use manager::external_probes::{
    CertificateError, CertificateTrouble, ExternalProbes, FetchError, Kubelet, KubeletError, KubeletFile,
};
use release::tls::{Identity, TlsError, Trust};
use world::{Facts, RepositoryError};

/// Answers from the world's facts.
pub struct Simulated {
    facts: Facts,
    minted: AtomicU64,
}

impl Simulated {
    /// Answers from these facts.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        Self {
            facts,
            minted: AtomicU64::new(0),
        }
    }

    /// Answers after a while, by what is true then.
    fn answer<'a, T>(&'a self, answer: impl FnOnce(&'a Facts) -> T + Send + 'a) -> BoxFuture<'a, T> {
        self.facts.think().map(move |()| answer(&self.facts)).boxed()
    }
}

impl ExternalProbes for Simulated {
    fn fetch<'a>(&'a self, url: &'a str, trust: Option<&'a Trust>) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        let certificate = trust.map(|trust| trust.certificate.as_str());
        self.answer(move |facts| match facts.repository(url, certificate) {
            Ok(body) => Ok(body.to_vec()),
            Err(RepositoryError::Status(404)) => Err(FetchError::NotFound),
            Err(error) => Err(FetchError::Other(error.to_string())),
        })
    }

    fn size<'a>(&'a self, url: &'a str, _: Option<&'a Trust>) -> BoxFuture<'a, Result<u64, FetchError>> {
        self.answer(|facts| facts.size(url).ok_or(FetchError::NotFound))
    }

    fn mint<'a>(&'a self, server_name: &'a str) -> BoxFuture<'a, Result<Identity, TlsError>> {
        // Nothing reads these, but the world compares them; each is another one, and the same in each run with a seed.
        let number = self.minted.fetch_add(1, Ordering::Relaxed);
        let label = move |what: &str, moment| format!("{what} {number} of {server_name} at {moment}\n");
        self.answer(move |facts| {
            let now = facts.now();
            Ok(Identity {
                certificate: label("certificate", now),
                key: label("key", now),
            })
        })
    }

    fn certificate_end<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Timestamp, CertificateError>> {
        self.answer(move |facts| {
            let mut known = facts.api_certificates().into_iter();
            let end = known.find(|(known, _)| known == address).map(|(_, end)| end);
            end.ok_or_else(|| CertificateError {
                address: address.to_owned(),
                source: CertificateTrouble::Refused,
            })
        })
    }

    fn kubelet<'a>(&'a self, kubelet: &'a Kubelet, file: KubeletFile) -> BoxFuture<'a, Result<Vec<u8>, KubeletError>> {
        self.answer(move |facts| match facts.kubelet(&kubelet.node, file.path()) {
            Some((200, _, body)) => Ok(body.to_vec()),
            Some((403, _, body)) => Err(KubeletError::Forbidden(String::from_utf8_lossy(&body).into_owned())),
            Some((code, _, body)) => {
                let body = String::from_utf8_lossy(&body);
                Err(KubeletError::Other(format!("{code}: {body}")))
            }
            None => Err(KubeletError::Other("no such node".to_owned())),
        })
    }
}
