//! One file of the repository as a stream of bytes that survives broken connections: it goes on where it broke, and
//! only with the very version it began with.

use std::time::Duration;

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::BodyExt;
use hyper::body::{Bytes, Incoming};

use super::repository::{Head, Repository, Tries, head_of, refusal};
use program::error::{Error, Result};
use rules::error_text::with_causes;

/// A download under way.
pub(super) struct Download<'a> {
    repository: &'a Repository,
    path: &'a str,
    head: Head,
    /// How many bytes have been handed out, those the caller had before included.
    at: u64,
    /// The body of the present connection, and how many of its bytes are known already.
    body: Option<(Incoming, u64)>,
    tries: Tries<'a>,
}

/// Why there is no body to read from.
enum Trouble {
    /// Try again.
    Again(String),
    /// This download is over.
    Over(Error),
}

/// Why the present body ends too early.
#[derive(Debug, thiserror::Error)]
enum BrokenOff {
    /// The server says nothing more.
    #[error("nothing came for {} s", .0.as_secs())]
    Stalled(Duration),
    /// The server takes it to be whole.
    #[error("the answer ended")]
    Ended,
    /// The connection is gone.
    #[error("{}", with_causes(.0))]
    Broken(#[source] hyper::Error),
}

impl<'a> Download<'a> {
    /// The rest of a file from a byte on.
    pub(super) fn new(repository: &'a Repository, path: &'a str, head: Head, from: u64) -> Self {
        Self {
            repository,
            path,
            head,
            at: from,
            body: None,
            tries: repository.tries(),
        }
    }

    /// How many bytes there are so far.
    pub(super) fn at(&self) -> u64 {
        self.at
    }

    /// The next bytes; nothing at the end, which comes after exactly as many as were promised.
    ///
    /// # Errors
    /// Transient when the file changed meanwhile; permanent when it is gone, or patience is at its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>> {
        loop {
            if self.at >= self.head.size {
                return Ok(None);
            }
            if self.body.is_none() {
                match self.connect().await {
                    Ok(body) => self.body = Some(body),
                    Err(Trouble::Over(error)) => return Err(error),
                    Err(Trouble::Again(why)) => {
                        self.tries.failed(&why).await?;
                        continue;
                    }
                }
            }
            match self.read().await {
                Ok(Some(bytes)) => {
                    self.at += bytes.len() as u64;
                    self.tries.succeeded();
                    return Ok(Some(bytes));
                }
                Ok(None) => {}
                Err(why) => {
                    self.body = None;
                    let url = self.repository.url(self.path);
                    let why = format!("{url} broke off after {} of {} bytes: {why}", self.at, self.head.size);
                    self.tries.failed(&why).await?;
                }
            }
        }
    }

    /// The next new bytes of the present body; nothing when they were known.
    async fn read(&mut self) -> Result<Option<Bytes>, BrokenOff> {
        let stall = self.repository.patience().stall;
        let Some((body, known)) = &mut self.body else {
            return Ok(None);
        };
        let frame = match tokio::time::timeout(stall, body.frame()).await {
            Err(_) => return Err(BrokenOff::Stalled(stall)),
            Ok(None) => return Err(BrokenOff::Ended),
            Ok(Some(Err(error))) => return Err(BrokenOff::Broken(error)),
            Ok(Some(Ok(frame))) => frame,
        };
        let Ok(mut bytes) = frame.into_data() else {
            return Ok(None);
        };
        let skipped = usize::try_from(*known).unwrap_or(usize::MAX).min(bytes.len());
        *known -= skipped as u64;
        let _ = bytes.split_to(skipped);
        let wanted = usize::try_from(self.head.size - self.at).unwrap_or(usize::MAX);
        bytes.truncate(wanted);
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    async fn connect(&self) -> Result<(Incoming, u64), Trouble> {
        let response = self.repository.request(Method::GET, self.path, self.condition()).await;
        let response = response.map_err(|error| match error {
            Error::Transient(why) => Trouble::Again(why),
            error => Trouble::Over(error),
        })?;
        let url = self.repository.url(self.path);
        match response.status() {
            // The whole file: the server does not do ranges, or has another version.
            StatusCode::OK if self.is_same(&response) => Ok((response.into_body(), self.at)),
            StatusCode::OK | StatusCode::RANGE_NOT_SATISFIABLE => Err(Trouble::Over(Error::Transient(format!(
                "{url} changed while it was read"
            )))),
            StatusCode::PARTIAL_CONTENT => {
                let range = response.headers().get(header::CONTENT_RANGE);
                let range = range.and_then(|value| value.to_str().ok()).unwrap_or_default();
                if range.starts_with(&format!("bytes {}-", self.at)) && range.ends_with(&format!("/{}", self.head.size))
                {
                    return Ok((response.into_body(), 0));
                }
                let at = self.at;
                Err(Trouble::Again(format!(
                    "{url}: requested bytes from {at} on, got {range:?}"
                )))
            }
            status => Err(match refusal(&url, status) {
                Error::Transient(why) => Trouble::Again(why),
                error => Trouble::Over(error),
            }),
        }
    }

    /// From where on, if it is still the same file.
    fn condition(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if self.at > 0
            && let Ok(range) = HeaderValue::from_str(&format!("bytes={}-", self.at))
        {
            headers.insert(header::RANGE, range);
            let validator = self.head.validator.as_deref().map(HeaderValue::from_str);
            if let Some(Ok(validator)) = validator {
                headers.insert(header::IF_RANGE, validator);
            }
        }
        headers
    }

    fn is_same(&self, response: &Response<Incoming>) -> bool {
        head_of(response.headers()).is_some_and(|head| head == self.head)
    }
}
