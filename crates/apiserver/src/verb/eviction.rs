//! POST of `pods/eviction`: a deletion that disruption budgets may refuse; and of `pods/binding`.

use serde_json::{Value, json};

use super::delete::{self, Options};
use crate::{
    body, builtin_fields,
    request::Call,
    route::Answer,
    selector::LabelSelector,
    server::Server,
    status::{ApiError, ApiResult},
    write::{self, Draft, Ownership},
};

fn success(code: u16, changed: bool) -> Answer {
    let value = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code});
    Answer::Value { code, value, changed }
}

pub(super) async fn evict(server: &Server, call: &Call) -> ApiResult<Answer> {
    let eviction = body::parse(call)?;
    if eviction["kind"].as_str().is_some_and(|kind| kind != "Eviction") {
        return Err(ApiError::bad_request(format!(
            "the kind in the data ({}) does not match the expected kind (Eviction)",
            eviction["kind"]
        )));
    }
    builtin_fields::check_eviction(call, &eviction)?;
    let named = eviction["metadata"]["name"].as_str().filter(|name| !name.is_empty());
    if let Some(name) = named.filter(|name| *name != call.name()) {
        return Err(ApiError::bad_request(format!(
            "name in URL does not match name in Eviction object: {name}"
        )));
    }
    let pod = server.store.get("", "pods", call.namespace(), call.name());
    let pod = pod.ok_or_else(|| ApiError::not_found(call.kind(), call.name()))?;
    let options = Options::from_value(call, &eviction["deleteOptions"])?;
    // Pods that do not run do not count.
    let over = matches!(
        pod["status"]["phase"].as_str(),
        Some("Succeeded" | "Failed" | "Pending")
    );
    if !over {
        spend_budgets(server, call, &pod)?;
    }
    let key = (call.namespace().to_owned(), call.name().to_owned());
    delete::remove(server, call, call.kind(), &key, &options).await?;
    Ok(success(201, true))
}

fn spend_budgets(server: &Server, call: &Call, pod: &Value) -> ApiResult<()> {
    let budgets = server
        .store
        .list("policy", "poddisruptionbudgets", Some(call.namespace()));
    let matching: Vec<_> = budgets
        .into_iter()
        .filter(|budget| {
            LabelSelector::from_object(&budget["spec"]["selector"])
                .is_some_and(|selector| selector.matches(&pod["metadata"]["labels"]))
        })
        .collect();
    if matching.len() > 1 {
        return Err(ApiError::internal(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
        ));
    }
    for budget in matching {
        let status = &budget["status"];
        if status["disruptionsAllowed"].as_i64().unwrap_or_default() > 0 {
            // The budget is spent by its controller.
            continue;
        }
        let number = |field: &str| status[field].as_i64().unwrap_or_default();
        if !is_ready(pod) && number("desiredHealthy") > 0 && number("currentHealthy") >= number("desiredHealthy") {
            // A pod that is not ready is not missed while enough others are.
            continue;
        }
        let message = "Cannot evict pod as it would violate the pod's disruption budget.";
        let mut error = ApiError::new(429, "TooManyRequests", message);
        error.details = Some(Box::new(json!({"causes": [{
            "reason": "DisruptionBudget",
            "message": format!(
                "The disruption budget {} needs {} healthy pods and has {} currently",
                budget["metadata"]["name"].as_str().unwrap_or_default(), number("desiredHealthy"), number("currentHealthy"),
            ),
        }]})));
        return Err(error);
    }
    Ok(())
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let mut ready = conditions.filter(|condition| condition["type"] == "Ready");
    ready.any(|condition| condition["status"] == "True")
}

/// What a scheduler does: the pod gets its node.
pub(super) async fn bind(server: &Server, call: &Call) -> ApiResult<Answer> {
    let binding = body::parse(call)?;
    let node = binding["target"]["name"].as_str().unwrap_or_default().to_owned();
    if node.is_empty() {
        return Err(ApiError::bad_request("target.name: Required value"));
    }
    write::update(server, call, |old| {
        if old["spec"]["nodeName"].as_str().is_some_and(|found| !found.is_empty()) {
            let why = format!(
                "pod {} is already assigned to node {}",
                call.name(),
                old["spec"]["nodeName"]
            );
            return Err(ApiError::conflict(call.kind(), call.name(), &why));
        }
        let mut object = old.clone();
        object["spec"]["nodeName"] = json!(node);
        Ok(Draft {
            object,
            ownership: Ownership::Track,
            replaces: false,
        })
    })
    .await?;
    Ok(success(201, true))
}
