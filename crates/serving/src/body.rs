//! Bodies: of a request, within its limits; of a response, which reports when it is sent.

use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body_util::Limited;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use tokio::time::{Sleep, sleep};

use crate::{
    Limits,
    phase::{Connection, UnderWay},
};

/// An error of any kind.
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The body was not received in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooSlow;

impl std::fmt::Display for TooSlow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the body of the request was not received in time")
    }
}

impl std::error::Error for TooSlow {}

/// The body of a request: no longer than allowed, and no slower.
#[derive(Debug)]
pub struct RequestBody {
    body: Pin<Box<Limited<Incoming>>>,
    late: Pin<Box<Sleep>>,
    connection: Connection,
}

impl RequestBody {
    pub(crate) fn new(body: Incoming, limits: &Limits, connection: Connection) -> Self {
        if body.is_end_stream() {
            connection.is_answered();
        }
        Self {
            body: Box::pin(Limited::new(body, limits.body_bytes)),
            late: Box::pin(sleep(limits.body_time)),
            connection,
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Poll::Ready(frame) = self.body.as_mut().poll_frame(context) {
            if frame.is_none() || self.body.is_end_stream() {
                self.connection.is_answered();
            }
            return Poll::Ready(frame);
        }
        ready!(self.late.as_mut().poll(context));
        Poll::Ready(Some(Err(Box::new(TooSlow))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The body of an answer. When it is sent, or given up, the request is no longer under way.
#[derive(Debug)]
pub(crate) struct AnswerBody<B> {
    pub(crate) body: Pin<Box<B>>,
    pub(crate) _under_way: UnderWay,
}

impl<B: Body> Body for AnswerBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        self.body.as_mut().poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
