//! The upgrade repository as a node sees it: one request at a time, with timeouts, and an opinion on which failures
//! pass by themselves.

use std::time::Duration;

use clock::Clock;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use release::{
    bundle::Sha256Sum,
    tls::{Connector, TlsError, Trust, connector},
};

use super::pinned::Pin;
use program::error::{Error, Result};
use rules::error_text::with_causes;

/// How long a node bears with its repository. A replica that is replaced is back within minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Tries in a row that brought nothing before the node gives up.
    pub tries: u32,
    /// The pause after the first such try; each further one is twice as long.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// How long an answer may take to begin.
    pub answer: Duration,
    /// How long a body may bring nothing.
    pub stall: Duration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            tries: 30,
            first_pause: Duration::from_secs(1),
            longest_pause: Duration::from_secs(30),
            answer: Duration::from_secs(30),
            stall: Duration::from_secs(60),
        }
    }
}

/// What is known of a file before it is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// How many bytes it has.
    pub(super) size: u64,
    /// What tells this version of it from others; a strong entity tag or a date.
    pub(super) validator: Option<String>,
}

/// A repository.
#[derive(Clone, Debug)]
pub struct Repository {
    base: String,
    client: Client<Connector, Empty<Bytes>>,
    clock: Clock,
    patience: Patience,
    pub(super) pin: Option<Pin>,
}

impl Repository {
    /// The repository at a URL, which is that of the ISO's root: `https://…/harvester-iso`. With something to trust nothing
    /// is read from anybody else, and nothing without TLS.
    ///
    /// # Errors
    /// What is to be trusted is no certificate, or the URL goes without TLS.
    pub fn new(base: &str, trust: Option<&Trust>, clock: Clock, patience: Patience) -> Result<Self, TlsError> {
        if trust.is_some() && !base.starts_with("https://") {
            return Err(TlsError::Plain(base.to_owned()));
        }
        if trust.is_none() {
            tracing::warn!(
                "no certificate of the repository is recorded: the server that answers for its name is not verified"
            );
        }
        let mut http = HttpConnector::new();
        http.set_connect_timeout(Some(patience.answer));
        http.set_nodelay(true);
        Ok(Self {
            base: base.trim_end_matches('/').to_owned(),
            client: Client::builder(TokioExecutor::new()).build(connector(http, trust)?),
            clock,
            patience,
            pin: None,
        })
    }

    /// The same, with the SHA-256 of its manifest: what does not fit is refused. Without one it is believed as it is.
    #[must_use]
    pub fn pinned_to(self, root: Option<Sha256Sum>) -> Self {
        if root.is_none() {
            tracing::warn!("no digest of the release is recorded: what the repository serves is not verified");
        }
        Self {
            pin: root.map(Pin::new),
            ..self
        }
    }

    /// Where a file is; `path` begins at the root of the ISO.
    #[must_use]
    pub fn url(&self, path: &str) -> String {
        format!("{}/{path}", self.base)
    }

    pub(super) fn patience(&self) -> Patience {
        self.patience
    }

    /// A new count of tries.
    pub(super) fn tries(&self) -> Tries<'_> {
        self.tries_up_to(u32::MAX)
    }

    /// A new count of fewer tries.
    pub(super) fn tries_up_to(&self, most: u32) -> Tries<'_> {
        let patience = Patience {
            tries: self.patience.tries.min(most),
            ..self.patience
        };
        Tries {
            patience,
            clock: &self.clock,
            made: 0,
        }
    }

    /// Reads a text once. What is longer than `largest` is not what was looked for.
    ///
    /// # Errors
    /// [`Error::Transient`] when another try may help, [`Error::Refused`] when it is not the recorded one, else
    /// [`Error::Permanent`].
    pub async fn text_once(&self, path: &str, largest: u64) -> Result<String> {
        let url = self.url(path);
        let bytes = self.bytes_once(&url, largest).await?;
        self.check(path, &bytes).await?;
        String::from_utf8(bytes).map_err(|_| Error::Permanent(format!("failed to read {url}: it is no text")))
    }

    /// Reads a small file once.
    pub(super) async fn bytes_once(&self, url: &str, largest: u64) -> Result<Vec<u8>> {
        let response = self.ask(Method::GET, url, HeaderMap::new()).await?;
        if response.status() != StatusCode::OK {
            return Err(refusal(url, response.status()));
        }
        let largest = usize::try_from(largest).unwrap_or(usize::MAX);
        let body = tokio::time::timeout(
            self.patience.stall,
            Limited::new(response.into_body(), largest).collect(),
        )
        .await
        .map_err(|_| Error::Transient(format!("failed to read {url}: it took too long")))?;
        match body {
            Ok(body) => Ok(body.to_bytes().to_vec()),
            Err(error) if error.is::<http_body_util::LengthLimitError>() => Err(Error::Permanent(format!(
                "failed to read {url}: it has more than {largest} bytes"
            ))),
            Err(error) => Err(Error::Transient(format!("failed to read {url}: {error}"))),
        }
    }

    /// Reads a text, again on a transient error.
    ///
    /// # Errors
    /// When the file is not there, is no text, or patience is at its end.
    pub async fn text(&self, path: &str, largest: u64) -> Result<String> {
        let mut tries = self.tries();
        loop {
            match self.text_once(path, largest).await {
                Err(Error::Transient(why)) => tries.failed(&why).await?,
                done => return done,
            }
        }
    }

    /// What a file is like, again on a transient error.
    pub(super) async fn head(&self, path: &str) -> Result<Head> {
        let mut tries = self.tries();
        loop {
            match self.head_once(path).await {
                Err(Error::Transient(why)) => tries.failed(&why).await?,
                done => return done,
            }
        }
    }

    async fn head_once(&self, path: &str) -> Result<Head> {
        let response = self.request(Method::HEAD, path, HeaderMap::new()).await?;
        let url = self.url(path);
        if response.status() != StatusCode::OK {
            return Err(refusal(&url, response.status()));
        }
        let head = head_of(response.headers());
        let head = head.ok_or_else(|| Error::Permanent(format!("{url}: the answer has no content-length")))?;
        self.check_size(path, head.size).await?;
        Ok(head)
    }

    /// Asks for a file, once, and waits for the head of the answer.
    pub(super) async fn request(&self, method: Method, path: &str, headers: HeaderMap) -> Result<Response<Incoming>> {
        self.ask(method, &self.url(path), headers).await
    }

    async fn ask(&self, method: Method, url: &str, headers: HeaderMap) -> Result<Response<Incoming>> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .body(Empty::new())
            .map_err(|error| Error::Permanent(format!("failed to ask for {url}: {error}")))?;
        request.headers_mut().extend(headers);
        match tokio::time::timeout(self.patience.answer, self.client.request(request)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => {
                let why = format!("failed to reach {url}: {}", with_causes(&error));
                // Another try would meet the same stranger.
                Err(match is_stranger(&error) {
                    true => Error::Refused(format!(
                        "{why}: it is not the repository of this upgrade, or its clock or ours is wrong"
                    )),
                    false => Error::Transient(why),
                })
            }
            Err(_) => Err(Error::Transient(format!("failed to reach {url}: no answer in time"))),
        }
    }
}

/// Counts tries that brought nothing, and pauses after each.
pub(super) struct Tries<'a> {
    patience: Patience,
    clock: &'a Clock,
    made: u32,
}

impl Tries<'_> {
    /// Something was brought: the count begins again.
    pub(super) fn succeeded(&mut self) {
        self.made = 0;
    }

    /// Pauses, or gives up.
    pub(super) async fn failed(&mut self, why: &str) -> Result<()> {
        self.made += 1;
        if self.made >= self.patience.tries {
            return Err(Error::Permanent(format!("{why}; gave up after {} tries", self.made)));
        }
        let factor = 1_u32.checked_shl(self.made - 1).unwrap_or(u32::MAX);
        let pause = self.patience.first_pause.saturating_mul(factor);
        tracing::warn!(tries = self.made, "{why}");
        self.clock.sleep(pause.min(self.patience.longest_pause)).await;
        Ok(())
    }
}

/// What a status that is not the wanted one means: servers recover, files that are not there stay away.
pub(super) fn refusal(url: &str, status: StatusCode) -> Error {
    let why = format!("failed to read {url}: {status}");
    if status.is_server_error() || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS) {
        Error::Transient(why)
    } else {
        Error::Permanent(why)
    }
}

/// Size and version of a file, from the answer that brings or describes it whole.
pub(super) fn head_of(headers: &HeaderMap) -> Option<Head> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let size = text(header::CONTENT_LENGTH)?.parse().ok()?;
    // A weak tag does not promise the same bytes.
    let tag = text(header::ETAG).filter(|tag| !tag.starts_with("W/"));
    let validator = tag.or_else(|| text(header::LAST_MODIFIED)).map(str::to_owned);
    Some(Head { size, validator })
}

/// Whether somebody answers who is not the one that is trusted: with another certificate, or not over TLS.
fn is_stranger(error: &(dyn std::error::Error + 'static)) -> bool {
    if error.is::<rustls::Error>() {
        return true;
    }
    // An I/O error does not name what is inside it as its source.
    let inside = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
    inside.is_some_and(|inside| is_stranger(inside)) || error.source().is_some_and(is_stranger)
}
