//! The manager's view of the outside, answered by the simulated world.

use futures::{FutureExt, future::BoxFuture};
use jiff::Timestamp;
use manager::outside::{FetchError, Kubelet, KubeletError, KubeletFile, Outside};
use world::{Facts, RepositoryError};

/// Answers from the world's facts.
pub struct Simulated {
    facts: Facts,
}

impl Simulated {
    /// Answers from these facts.
    #[must_use]
    pub fn new(facts: Facts) -> Self {
        Self { facts }
    }

    /// Answers after a while, by what is true then.
    fn answer<'a, T>(&'a self, answer: impl FnOnce(&'a Facts) -> T + Send + 'a) -> BoxFuture<'a, T> {
        self.facts.think().map(move |()| answer(&self.facts)).boxed()
    }
}

impl Outside for Simulated {
    fn fetch<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        self.answer(|facts| match facts.repository(url) {
            Ok(body) => Ok(body.to_vec()),
            Err(RepositoryError::Status(404)) => Err(FetchError::NotFound),
            Err(error) => Err(FetchError::Other(error.to_string())),
        })
    }

    fn size<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<u64, FetchError>> {
        self.answer(|facts| facts.size(url).ok_or(FetchError::NotFound))
    }

    fn certificate_end<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Timestamp, String>> {
        self.answer(move |facts| {
            let mut known = facts.api_certificates().into_iter();
            let end = known.find(|(known, _)| known == address).map(|(_, end)| end);
            end.ok_or_else(|| format!("{address}: connection refused"))
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
