//! The paths of the webhooks, and what is answered there.

use axum::{Json, Router, body::Bytes, extract::DefaultBodyLimit, routing::post};

use super::{
    configurations::{MUTATING_PATH, VALIDATING_PATH},
    facts::Facts,
    review::{Answer, Review},
};

/// Largest request: two objects of the largest size that an API server stores.
const BODY_LIMIT: usize = 3 * 1024 * 1024;

/// Both webhooks at their paths.
pub fn router(facts: Facts) -> Router {
    let validate = move |body: Bytes| {
        let facts = facts.clone();
        async move { Json(validate(&facts, &body).await) }
    };
    let mutate = async |body: Bytes| Json(mutate(&body));
    Router::new()
        .route(VALIDATING_PATH, post(validate))
        .route(MUTATING_PATH, post(mutate))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
}

/// What the validating webhook answers.
pub async fn validate(facts: &Facts, body: &[u8]) -> Answer {
    match Review::read(body) {
        Ok(review) => {
            let cluster = facts.read(review.reads()).await;
            review.validate(&cluster)
        }
        Err(answer) => *answer,
    }
}

/// What the mutating webhook answers.
#[must_use]
pub fn mutate(body: &[u8]) -> Answer {
    Review::read(body).map_or_else(|answer| *answer, Review::mutate)
}
