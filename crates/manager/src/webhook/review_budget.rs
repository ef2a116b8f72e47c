//! How many reviews are processed at once, so that the memory of a manager is bounded.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use axum::{body::Body, http::StatusCode};
use http_body_util::{BodyExt, LengthLimitError};
use hyper::body::Body as _;
use serving::{Limits, Place, Places, TooSlow};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Reviews that are understood and decided at once. Each may hold a plan, and lists of the whole cluster.
pub const AT_ONCE: usize = 2;
/// Bytes up to which a body is read without a place among the large ones.
pub const SMALL: usize = 64 * 1024;
/// Bodies larger than that at once.
pub const LARGE: usize = 4;
/// Those of one address among them.
pub const LARGE_PER_PEER: usize = 2;

/// Where reviews come in. All clones are the same.
#[derive(Clone, Debug)]
pub struct ReviewBudget {
    large: Places,
    all: Arc<Semaphore>,
    /// By address: one review at a time, so that no client waits for more than one review of each other client.
    peers: Arc<Mutex<BTreeMap<IpAddr, Weak<Semaphore>>>>,
}

/// A body, with the place that a large one holds until it is dropped.
#[derive(Debug)]
pub struct Gathered {
    /// All of it.
    pub bytes: Vec<u8>,
    _place: Option<Place>,
}

/// A turn to understand and decide a review, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _all: Option<OwnedSemaphorePermit>,
}

impl Default for ReviewBudget {
    fn default() -> Self {
        Self {
            large: Places::of(LARGE, LARGE_PER_PEER, 0),
            all: Arc::new(Semaphore::new(AT_ONCE)),
            peers: Arc::default(),
        }
    }
}

impl ReviewBudget {
    /// Reads a body. Of large ones that are not there yet, the oldest gives way to a newcomer.
    ///
    /// # Errors
    /// The status of the answer to a body that is too large, too slow or broken, or had to give way.
    pub async fn gather(&self, mut body: Body, peer: IpAddr) -> Result<Gathered, StatusCode> {
        let most = Limits::WEBHOOK.body_bytes;
        let announced = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
        let mut bytes = Vec::new();
        let mut place: Option<Place> = None;
        loop {
            let frame = match &place {
                None => body.frame().await,
                Some(place) => tokio::select! {
                    biased;
                    () = place.lost() => return Err(StatusCode::SERVICE_UNAVAILABLE),
                    frame = body.frame() => frame,
                },
            };
            let Some(frame) = frame else { break };
            let Ok(data) = frame.map_err(|error| status(error.into_inner().as_ref()))?.into_data() else {
                continue;
            };
            let length = bytes.len() + data.len();
            if length > most {
                return Err(StatusCode::PAYLOAD_TOO_LARGE);
            }
            if length > SMALL && place.is_none() {
                let own = self.large.enter(peer);
                if own.is_crowded() {
                    return Err(StatusCode::SERVICE_UNAVAILABLE);
                }
                place = Some(own);
                bytes.reserve_exact(announced.min(most).saturating_sub(bytes.len()));
            }
            bytes.extend_from_slice(&data);
        }
        if let Some(place) = &place {
            place.set_answered(true);
        }
        Ok(Gathered { bytes, _place: place })
    }

    /// Waits for a turn.
    pub async fn turn(&self, peer: IpAddr) -> Turn {
        let own = self.of_peer(peer);
        // Semaphores are never closed.
        let own = own.acquire_owned().await.ok();
        let all = Arc::clone(&self.all).acquire_owned().await.ok();
        Turn { _own: own, _all: all }
    }

    fn of_peer(&self, peer: IpAddr) -> Arc<Semaphore> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        peers.retain(|_, own| own.strong_count() > 0);
        if let Some(own) = peers.get(&peer).and_then(Weak::upgrade) {
            return own;
        }
        let own = Arc::new(Semaphore::new(1));
        peers.insert(peer, Arc::downgrade(&own));
        own
    }
}

/// What a body that broke gets.
fn status(error: &(dyn std::error::Error + Send + Sync + 'static)) -> StatusCode {
    if error.is::<LengthLimitError>() {
        StatusCode::PAYLOAD_TOO_LARGE
    } else if error.is::<TooSlow>() {
        StatusCode::REQUEST_TIMEOUT
    } else {
        StatusCode::BAD_REQUEST
    }
}
