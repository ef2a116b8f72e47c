//! `/metrics`: over HTTPS for authorized clients, or plain HTTP for all clients on request.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse, Response},
    routing::get,
};
use clock::Clock;
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, UserInfo},
    authorization::v1::{NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec},
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use serving::Limits;
use tokio::net::TcpListener;

use crate::{
    https,
    tls::{
        Certificate, Clients, Presented,
        files::{Files, Follower},
        mint,
    },
    watched::Watched,
};

use super::Metrics;

/// Where it is served, and what a reader must be allowed to get.
const PATH: &str = "/metrics";
/// For how long an answer of the API server about a token is cached.
const BELIEVED: Duration = Duration::from_secs(60);
/// Most tokens whose answers are remembered: readers are few.
const REMEMBERED: usize = 64;

/// How metrics are served.
#[derive(Clone, Debug)]
pub struct MetricsConfig {
    /// What is served.
    pub metrics: Metrics,
    /// Where it listens; without it metrics are kept and not served.
    pub listener: Option<Arc<std::net::TcpListener>>,
    /// Who may read.
    pub access: Access,
}

/// Who may read metrics.
#[derive(Clone, Debug)]
pub enum Access {
    /// All clients, without encryption.
    Open,
    /// Clients that may `get` the path, over HTTPS. Without files the manager makes its own certificate.
    Authorised {
        /// Where the certificate is.
        files: Option<Files>,
        /// The names of a certificate of our own.
        names: Vec<String>,
    },
}

/// Serves until it is dropped. Never ends by itself.
pub async fn run(client: Client, clock: Clock, watched: Watched, config: MetricsConfig) {
    let Some(listener) = config.listener else {
        return std::future::pending().await;
    };
    let listener = match listener.try_clone().and_then(TcpListener::from_std) {
        Ok(listener) => listener,
        Err(error) => {
            tracing::error!(%error, "the metrics server failed");
            return std::future::pending().await;
        }
    };
    let page = Page {
        metrics: config.metrics,
        watched,
        clock: clock.clone(),
    };
    match config.access {
        Access::Open => {
            let router = Router::new().route(PATH, get(move || async move { page.render() }));
            https::serve_plain(&listener, router, Limits::METRICS).await;
        }
        Access::Authorised { files, names } => {
            let gate = Gate::new(client, clock.clone());
            let router = Router::new().route(
                PATH,
                get(move |headers: HeaderMap| async move {
                    match gate.admit(&headers).await {
                        Ok(()) => page.render(),
                        Err(refused) => refused.into_response(),
                    }
                }),
            );
            let presented = Presented::default();
            let clients = Clients::Any;
            let serve = https::serve(Arc::new(listener), presented.clone(), &clients, router, Limits::METRICS);
            let keep = async {
                match files {
                    Some(files) => Follower::new(files, presented).run(clock).await,
                    None => present_own(&presented, &names, &clock).await,
                }
            };
            let (served, ()) = futures::join!(serve, keep);
            if let Err(error) = served {
                tracing::error!(%error, "the metrics server failed");
            }
        }
    }
}

/// Presents certificates that clients need not trust: Prometheus knows us by our address, and we know it by its token.
async fn present_own(presented: &Presented, names: &[String], clock: &Clock) {
    loop {
        let made = mint::mint(names, clock.now(), mint::LIFE).and_then(|minted| Certificate::read(&minted.pem));
        match made {
            Ok(certificate) => {
                presented.replace(&certificate);
                clock.sleep_until(certificate.due()).await;
            }
            Err(error) => {
                tracing::error!(%error, "failed to make a certificate for metrics");
                return std::future::pending().await;
            }
        }
    }
}

#[derive(Clone)]
struct Page {
    metrics: Metrics,
    watched: Watched,
    clock: Clock,
}

impl Page {
    fn render(&self) -> Response {
        match self.metrics.render(&self.watched.plans.list(), self.clock.now()) {
            Ok(text) => ([(header::CONTENT_TYPE, prometheus::TEXT_FORMAT)], text).into_response(),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// The response to a client that may not read, and why.
pub type Refused = (StatusCode, String);

/// Asks the API server whether a client may read.
#[derive(Clone)]
pub struct Gate {
    reviews: Api<TokenReview>,
    access: Api<SubjectAccessReview>,
    clock: Clock,
    /// By token: since when it is known to be good.
    good: Arc<Mutex<BTreeMap<String, Duration>>>,
}

impl Gate {
    /// Asks through a client.
    #[must_use]
    pub fn new(client: Client, clock: Clock) -> Self {
        Self {
            reviews: Api::all(client.clone()),
            access: Api::all(client),
            clock,
            good: Arc::default(),
        }
    }

    /// Admits clients whose token may read.
    ///
    /// # Errors
    /// All other clients.
    pub async fn admit(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let header = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = header.and_then(|value| value.strip_prefix("Bearer ")) else {
            return Err((StatusCode::UNAUTHORIZED, "send a bearer token".to_owned()));
        };
        if self.is_known(token) {
            return Ok(());
        }
        let user = self.authenticate(token).await?;
        self.authorise(user).await?;
        self.remember(token);
        Ok(())
    }

    fn is_known(&self, token: &str) -> bool {
        let good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.get(token)
            .is_some_and(|since| self.clock.elapsed() < *since + BELIEVED)
    }

    fn remember(&self, token: &str) {
        let now = self.clock.elapsed();
        let mut good = self.good.lock().unwrap_or_else(PoisonError::into_inner);
        good.retain(|_, since| now < *since + BELIEVED);
        if good.len() < REMEMBERED {
            good.insert(token.to_owned(), now);
        }
    }

    async fn authenticate(&self, token: &str) -> Result<UserInfo, Refused> {
        let review = TokenReview {
            metadata: ObjectMeta::default(),
            spec: TokenReviewSpec {
                token: Some(token.to_owned()),
                ..TokenReviewSpec::default()
            },
            status: None,
        };
        let review = self
            .reviews
            .create(&PostParams::default(), &review)
            .await
            .map_err(unsure)?;
        let status = review.status.unwrap_or_default();
        match status.user {
            Some(user) if status.authenticated == Some(true) => Ok(user),
            _ => Err((StatusCode::UNAUTHORIZED, "the token is not valid".to_owned())),
        }
    }

    async fn authorise(&self, user: UserInfo) -> Result<(), Refused> {
        let name = user.username.clone().unwrap_or_default();
        let review = SubjectAccessReview {
            metadata: ObjectMeta::default(),
            spec: SubjectAccessReviewSpec {
                user: user.username,
                uid: user.uid,
                groups: user.groups,
                extra: user.extra,
                non_resource_attributes: Some(NonResourceAttributes {
                    path: Some(PATH.to_owned()),
                    verb: Some("get".to_owned()),
                }),
                ..SubjectAccessReviewSpec::default()
            },
            status: None,
        };
        let review = self
            .access
            .create(&PostParams::default(), &review)
            .await
            .map_err(unsure)?;
        if review.status.is_some_and(|status| status.allowed) {
            Ok(())
        } else {
            let why = format!("{name} may not get {PATH}: bind it to the ClusterRole metrics-reader");
            Err((StatusCode::FORBIDDEN, why))
        }
    }
}

/// The API server did not respond: no client is admitted, and the reason is logged.
#[allow(clippy::needless_pass_by_value, reason = "for map_err")]
fn unsure(error: kube::Error) -> Refused {
    tracing::warn!(%error, "failed to ask whether metrics may be read");
    let why = "the API server could not authorize this request".to_owned();
    (StatusCode::INTERNAL_SERVER_ERROR, why)
}
