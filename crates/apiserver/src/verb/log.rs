//! GET of `pods/log`: which container is meant, which instance of it there is, and its lines, once or as they come. The
//! refusals are those of the real API server and of the kubelet behind it.

use std::sync::Arc;

use futures::stream;
use http::Response;
use serde_json::Value;

use super::log_options::LogOptions;
use crate::{
    logs::{self, ContainerInstance, Reader},
    request::Call,
    response::{self, Body},
    server::Server,
    status::{ApiError, ApiResult},
};

pub(super) fn read(server: &Server, call: &Call) -> ApiResult<Response<Body>> {
    let options = LogOptions::of(call)?;
    let kind = call.kind();
    let pod = server.store.read(&kind.resource, call.namespace(), call.name());
    let pod = pod.ok_or_else(|| ApiError::not_found(kind, call.name()))?;
    let container = container(&pod, call.name(), options.container.as_deref())?;
    let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
    if node.is_empty() {
        return Ok(response::nothing());
    }
    check_node(server, call, &options, node, container)?;
    let of = ContainerInstance {
        namespace: call.namespace(),
        pod: call.name(),
        uid: pod["metadata"]["uid"].as_str().unwrap_or_default(),
        container,
        restart: restart(&pod, call.name(), container, options.previous)?,
    };
    let wanted = options.wanted(server.now());
    if !options.follow {
        let file = server.logs.find(&of);
        let text = file.map(|file| Reader::new(file, wanted).rest()).unwrap_or_default();
        return Ok(response::raw(200, "text/plain", text));
    }
    let followed = server.logs.follow(&server.store, &of, node);
    let reader = followed.map(|followed| (Reader::new(Arc::clone(&followed.file), wanted), followed));
    // A client that disconnects drops this, and with it the reader.
    let chunks = stream::unfold(reader, |reader| async move {
        let (mut reader, followed) = reader?;
        let chunk = reader.next().await?;
        Some((chunk, Some((reader, followed))))
    });
    Ok(response::text_stream(chunks))
}

/// The names of all containers, init containers first, as the real server goes through them.
fn containers(pod: &Value) -> impl Iterator<Item = &str> {
    let lists = ["initContainers", "containers", "ephemeralContainers"];
    let all = lists
        .into_iter()
        .flat_map(|list| pod["spec"][list].as_array().into_iter().flatten());
    all.filter_map(|container| container["name"].as_str())
}

/// The container that is meant.
fn container<'a>(pod: &'a Value, name: &str, wanted: Option<&str>) -> ApiResult<&'a str> {
    if let Some(wanted) = wanted {
        return containers(pod)
            .find(|container| *container == wanted)
            .ok_or_else(|| ApiError::bad_request(format!("container {wanted} is not valid for pod {name}")));
    }
    let only = pod["spec"]["containers"].as_array().map(Vec::as_slice);
    match only.unwrap_or_default() {
        [only] => Ok(only["name"].as_str().unwrap_or_default()),
        [] => Err(ApiError::bad_request(format!(
            "a container name must be specified for pod {name}"
        ))),
        _ => {
            let all: Vec<&str> = containers(pod).collect();
            let all = all.join(" ");
            let why = format!("a container name must be specified for pod {name}, choose one of: [{all}]");
            Err(ApiError::bad_request(why))
        }
    }
}

/// The node is there, and its kubelet can be reached.
fn check_node(server: &Server, call: &Call, options: &LogOptions, node: &str, container: &str) -> ApiResult<()> {
    let Some(found) = server.store.get("", "nodes", "", node) else {
        // As the real one has it: the error of the node is given for the kind that was asked for.
        let kind = server.registry().find("", "v1", "pods");
        return Err(kind.map_or_else(ApiError::no_such_path, |kind| ApiError::not_found(&kind, node)));
    };
    if logs::is_reached(&found) {
        return Ok(());
    }
    let address = format!("{}:10250", address(&found).unwrap_or(node));
    let path = format!("containerLogs/{}/{}/{container}", call.namespace(), call.name());
    let query = options.kubelet_query();
    Err(ApiError::untranslated(format!(
        "Get \"https://{address}/{path}{query}\": dial tcp {address}: connect: no route to host"
    )))
}

fn address(node: &Arc<Value>) -> Option<&str> {
    let mut addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    let internal = addresses.find(|address| address["type"] == "InternalIP")?;
    internal["address"].as_str()
}

/// Which instance of a container there is to read, by the number of its restarts.
fn restart(pod: &Value, name: &str, container: &str, previous: bool) -> ApiResult<u32> {
    let refused = |why: String| Err(ApiError::bad_request(why));
    let no_previous = || format!("previous terminated container \"{container}\" in pod \"{name}\" not found");
    let waits = |why: &str| format!("container \"{container}\" in pod \"{name}\" is waiting to start: {why}");
    let Some(status) = logs::container_status(pod, container) else {
        // A kubelet has a status for every container from the start; a simulated one may not.
        let is_waiting = matches!(pod["status"]["phase"].as_str(), None | Some("Pending"));
        return match (previous, is_waiting) {
            (true, _) => refused(no_previous()),
            (false, true) if pod["spec"]["initContainers"][0].is_object() => refused(waits("PodInitializing")),
            (false, true) => refused(waits("ContainerCreating")),
            (false, false) => Ok(0),
        };
    };
    let restarts = logs::restarts(status);
    let has_started = status["state"]["running"].is_object() || status["state"]["terminated"].is_object();
    let had_ended = status["lastState"]["terminated"].is_object();
    match (previous, has_started, had_ended) {
        (true, _, false) => refused(no_previous()),
        (true, true, true) => Ok(restarts.saturating_sub(1)),
        // Between two instances the last one is the newest.
        (true, false, true) | (false, true, _) | (false, false, true) => Ok(restarts),
        (false, false, false) => refused(match status["state"]["waiting"]["reason"].as_str() {
            Some("ErrImagePull") => waits("image can't be pulled"),
            Some("ImagePullBackOff") => waits("trying and failing to pull image"),
            Some(reason) => waits(reason),
            None => format!("container \"{container}\" in pod \"{name}\" is waiting to start - no logs yet"),
        }),
    }
}
