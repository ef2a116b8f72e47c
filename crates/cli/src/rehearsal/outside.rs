//! The manager's view of the outside, answered by the simulated world.

use futures::future::BoxFuture;
use jiff::Timestamp;
use manager::outside::{FetchError, Outside};
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
}

impl Outside for Simulated {
    fn fetch<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        let answer = self
            .facts
            .repository(url)
            .map(|body| body.to_vec())
            .map_err(|error| match error {
                RepositoryError::Status(404) => FetchError::NotFound,
                error => FetchError::Other(error.to_string()),
            });
        Box::pin(std::future::ready(answer))
    }

    fn size<'a>(&'a self, url: &'a str) -> BoxFuture<'a, Result<u64, FetchError>> {
        Box::pin(std::future::ready(self.facts.size(url).ok_or(FetchError::NotFound)))
    }

    fn certificate_end<'a>(&'a self, address: &'a str) -> BoxFuture<'a, Result<Timestamp, String>> {
        let end = self
            .facts
            .api_certificates()
            .into_iter()
            .find(|(known, _)| known == address)
            .map(|(_, end)| end);
        Box::pin(std::future::ready(
            end.ok_or_else(|| format!("{address}: connection refused")),
        ))
    }
}
