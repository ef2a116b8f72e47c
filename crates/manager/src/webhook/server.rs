//! The paths of the webhooks, and what is answered there.

use std::net::{IpAddr, Ipv4Addr};

use axum::{
    Json, Router,
    extract::Request,
    response::{IntoResponse, Response},
    routing::post,
};
use jiff::Timestamp;
use serving::http::Peer;

use super::{
    configurations::{MUTATING_PATH, VALIDATING_PATH},
    facts::Facts,
    review::{Answer, Review},
    review_budget::ReviewBudget,
};

/// Both webhooks at their paths.
pub fn router(facts: Facts) -> Router {
    let review_budget = ReviewBudget::default();
    let (to_validate, to_mutate, clock) = (review_budget.clone(), review_budget, facts.clone());
    let validating = move |request: Request| {
        let (review_budget, facts) = (to_validate.clone(), facts.clone());
        async move {
            review(&review_budget, request, async |body: &[u8]| {
                validate(&facts, body).await
            })
            .await
        }
    };
    let mutating = move |request: Request| {
        let (review_budget, now) = (to_mutate.clone(), clock.now());
        async move { review(&review_budget, request, async |body: &[u8]| mutate(body, now)).await }
    };
    Router::new()
        .route(VALIDATING_PATH, post(validating))
        .route(MUTATING_PATH, post(mutating))
}

/// One review: taken in, understood and decided when it is its turn.
async fn review(review_budget: &ReviewBudget, request: Request, decide: impl AsyncFnOnce(&[u8]) -> Answer) -> Response {
    let peer = request.extensions().get::<Peer>();
    let peer = peer.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.0);
    let gathered = match review_budget.gather(request.into_body(), peer).await {
        Ok(gathered) => gathered,
        Err(refused) => return refused.into_response(),
    };
    let _turn = review_budget.turn(peer).await;
    Json(decide(&gathered.bytes).await).into_response()
}

/// What the validating webhook answers.
pub async fn validate(facts: &Facts, body: &[u8]) -> Answer {
    match Review::read(body) {
        Ok(review) => {
            let cluster = facts.read(review.reads()).await;
            let asker = facts.asker(&review).await;
            review.validate(&cluster, &asker, facts.sources())
        }
        Err(answer) => *answer,
    }
}

/// What the mutating webhook answers.
#[must_use]
pub fn mutate(body: &[u8], now: Timestamp) -> Answer {
    Review::read(body).map_or_else(|answer| *answer, |review| review.mutate(now))
}
