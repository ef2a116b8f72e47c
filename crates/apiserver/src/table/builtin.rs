//! Columns of built-in kinds, as `kubectl get` shows them.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    Cell, Column,
    age::{age, human},
    age_column,
};

type Compute = fn(&Value, Timestamp) -> Value;

fn column(name: &str, kind: &str, priority: i64, compute: Compute) -> Column {
    Column {
        name: name.into(),
        kind: kind.into(),
        format: String::new(),
        description: String::new(),
        priority,
        cell: Cell::Computed(compute),
    }
}

/// Columns after Name for a kind; empty for those that have only Name and Age.
pub(crate) fn builtin_columns(group: &str, kind: &str) -> Vec<Column> {
    let mut columns = match (group, kind) {
        ("", "Pod") => vec![
            column("Ready", "string", 0, |pod, _| pod_ready(pod)),
            column("Status", "string", 0, |pod, _| pod_status(pod)),
            column("Restarts", "string", 0, |pod, _| pod_restarts(pod)),
        ],
        ("", "Node") => vec![
            column("Status", "string", 0, |node, _| node_status(node)),
            column("Roles", "string", 0, |node, _| node_roles(node)),
        ],
        ("", "Namespace") => vec![column("Status", "string", 0, |o, _| o["status"]["phase"].clone())],
        ("", "Secret") => vec![
            column("Type", "string", 0, |o, _| o["type"].clone()),
            column("Data", "string", 0, |o, _| json!(size(&o["data"]))),
        ],
        ("", "ConfigMap") => {
            vec![column("Data", "string", 0, |o, _| {
                json!(size(&o["data"]) + size(&o["binaryData"]))
            })]
        }
        ("", "Service") => vec![
            column("Type", "string", 0, |o, _| o["spec"]["type"].clone()),
            column("Cluster-IP", "string", 0, |o, _| or_none(&o["spec"]["clusterIP"])),
            column("External-IP", "string", 0, |_, _| json!("<none>")),
            column("Port(s)", "string", 0, |o, _| ports(o)),
        ],
        ("", "PersistentVolumeClaim") => vec![
            column("Status", "string", 0, |o, _| o["status"]["phase"].clone()),
            column("Volume", "string", 0, |o, _| text(&o["spec"]["volumeName"])),
            column("Capacity", "string", 0, |o, _| {
                text(&o["status"]["capacity"]["storage"])
            }),
            column("Access Modes", "string", 0, |o, _| {
                json!(joined(&o["spec"]["accessModes"]))
            }),
            column("StorageClass", "string", 0, |o, _| text(&o["spec"]["storageClassName"])),
        ],
        ("", "Event") => {
            return vec![
                column("Last Seen", "string", 0, last_seen),
                column("Type", "string", 0, |event, _| event["type"].clone()),
                column("Reason", "string", 0, |event, _| event["reason"].clone()),
                column("Object", "string", 0, |event, _| event_object(&event["involvedObject"])),
                column("Message", "string", 0, |event, _| {
                    json!(event["message"].as_str().unwrap_or_default().trim())
                }),
            ];
        }
        ("events.k8s.io", "Event") => {
            return vec![
                column("Last Seen", "string", 0, |event, now| {
                    last_seen(&crate::event_view::to_core(event), now)
                }),
                column("Type", "string", 0, |event, _| event["type"].clone()),
                column("Reason", "string", 0, |event, _| event["reason"].clone()),
                column("Object", "string", 0, |event, _| event_object(&event["regarding"])),
                column("Message", "string", 0, |event, _| {
                    json!(event["note"].as_str().unwrap_or_default().trim())
                }),
            ];
        }
        ("apps", "Deployment") => vec![
            column("Ready", "string", 0, |o, _| {
                ratio(&o["status"]["readyReplicas"], &o["spec"]["replicas"])
            }),
            column("Up-to-date", "integer", 0, |o, _| {
                count(&o["status"]["updatedReplicas"])
            }),
            column("Available", "integer", 0, |o, _| {
                count(&o["status"]["availableReplicas"])
            }),
        ],
        ("apps", "StatefulSet") => {
            vec![column("Ready", "string", 0, |o, _| {
                ratio(&o["status"]["readyReplicas"], &o["spec"]["replicas"])
            })]
        }
        ("apps", "ReplicaSet") => vec![
            column("Desired", "integer", 0, |o, _| count(&o["spec"]["replicas"])),
            column("Current", "integer", 0, |o, _| count(&o["status"]["replicas"])),
            column("Ready", "integer", 0, |o, _| count(&o["status"]["readyReplicas"])),
        ],
        ("apps", "DaemonSet") => vec![
            column("Desired", "integer", 0, |o, _| {
                count(&o["status"]["desiredNumberScheduled"])
            }),
            column("Current", "integer", 0, |o, _| {
                count(&o["status"]["currentNumberScheduled"])
            }),
            column("Ready", "integer", 0, |o, _| count(&o["status"]["numberReady"])),
        ],
        ("batch", "Job") => vec![
            column("Status", "string", 0, |job, _| job_status(job)),
            column("Completions", "string", 0, |o, _| {
                ratio(&o["status"]["succeeded"], &o["spec"]["completions"])
            }),
            column("Duration", "string", 0, job_duration),
        ],
        ("coordination.k8s.io", "Lease") => {
            vec![column("Holder", "string", 0, |o, _| text(&o["spec"]["holderIdentity"]))]
        }
        ("policy", "PodDisruptionBudget") => vec![
            column("Min Available", "string", 0, |o, _| or_na(&o["spec"]["minAvailable"])),
            column("Max Unavailable", "string", 0, |o, _| {
                or_na(&o["spec"]["maxUnavailable"])
            }),
            column("Allowed Disruptions", "integer", 0, |o, _| {
                count(&o["status"]["disruptionsAllowed"])
            }),
        ],
        ("apiextensions.k8s.io", "CustomResourceDefinition") => {
            return vec![column("Created At", "date", 0, |o, _| {
                o["metadata"]["creationTimestamp"].clone()
            })];
        }
        ("storage.k8s.io", "StorageClass") => vec![column("Provisioner", "string", 0, |o, _| o["provisioner"].clone())],
        _ => return Vec::new(),
    };
    columns.push(age_column());
    if (group, kind) == ("", "Node") {
        columns.push(column("Version", "string", 0, |o, _| {
            o["status"]["nodeInfo"]["kubeletVersion"].clone()
        }));
        columns.push(column("Internal-IP", "string", 1, |o, _| or_none(&internal_ip(o))));
        columns.push(column("OS-Image", "string", 1, |o, _| {
            or_none(&o["status"]["nodeInfo"]["osImage"])
        }));
        columns.push(column("Kernel-Version", "string", 1, |o, _| {
            or_none(&o["status"]["nodeInfo"]["kernelVersion"])
        }));
    }
    if (group, kind) == ("", "Pod") {
        columns.push(column("IP", "string", 1, |o, _| or_none(&o["status"]["podIP"])));
        columns.push(column("Node", "string", 1, |o, _| or_none(&o["spec"]["nodeName"])));
    }
    columns
}

fn size(map: &Value) -> usize {
    map.as_object().map_or(0, serde_json::Map::len)
}

fn count(value: &Value) -> Value {
    json!(value.as_i64().unwrap_or_default())
}

fn ratio(done: &Value, wanted: &Value) -> Value {
    json!(format!(
        "{}/{}",
        done.as_i64().unwrap_or_default(),
        wanted.as_i64().unwrap_or(1)
    ))
}

fn text(value: &Value) -> Value {
    json!(value.as_str().unwrap_or_default())
}

fn or_none(value: &Value) -> Value {
    json!(value.as_str().filter(|text| !text.is_empty()).unwrap_or("<none>"))
}

fn or_na(value: &Value) -> Value {
    match value {
        Value::Null => json!("N/A"),
        Value::String(text) => json!(text),
        other => json!(other.to_string()),
    }
}

fn joined(list: &Value) -> String {
    let list: Vec<&str> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    list.join(",")
}

fn ports(service: &Value) -> Value {
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let texts: Vec<String> = ports
        .map(|port| format!("{}/{}", port["port"], port["protocol"].as_str().unwrap_or("TCP")))
        .collect();
    if texts.is_empty() {
        json!("<none>")
    } else {
        json!(texts.join(","))
    }
}

fn pod_ready(pod: &Value) -> Value {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let ready = statuses.filter(|status| status["ready"] == true).count();
    json!(format!(
        "{ready}/{}",
        pod["spec"]["containers"].as_array().map_or(0, Vec::len)
    ))
}

fn pod_status(pod: &Value) -> Value {
    if pod["metadata"].get("deletionTimestamp").is_some() {
        return json!("Terminating");
    }
    if let Some(reason) = pod["status"]["reason"].as_str() {
        return json!(reason);
    }
    match pod["status"]["phase"].as_str() {
        Some("Succeeded") => json!("Completed"),
        Some("Failed") => json!("Error"),
        Some(phase) => json!(phase),
        None => json!("Unknown"),
    }
}

fn pod_restarts(pod: &Value) -> Value {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let restarts: i64 = statuses.filter_map(|status| status["restartCount"].as_i64()).sum();
    json!(restarts.to_string())
}

fn node_status(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    let ready = conditions.into_iter().find(|condition| condition["type"] == "Ready");
    let mut status = match ready.map(|condition| condition["status"] == "True") {
        Some(true) => "Ready".to_owned(),
        Some(false) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if node["spec"]["unschedulable"] == true {
        status.push_str(",SchedulingDisabled");
    }
    json!(status)
}

fn node_roles(node: &Value) -> Value {
    let labels = node["metadata"]["labels"].as_object().into_iter().flatten();
    let mut roles: Vec<&str> = labels
        .filter_map(|(key, _)| key.strip_prefix("node-role.kubernetes.io/"))
        .filter(|role| !role.is_empty())
        .collect();
    roles.sort_unstable();
    if roles.is_empty() {
        json!("<none>")
    } else {
        json!(roles.join(","))
    }
}

fn internal_ip(node: &Value) -> Value {
    let addresses = node["status"]["addresses"].as_array().into_iter().flatten();
    addresses
        .into_iter()
        .find(|address| address["type"] == "InternalIP")
        .map_or(Value::Null, |a| a["address"].clone())
}

fn job_status(job: &Value) -> Value {
    let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
    let mut held = conditions.filter(|condition| condition["status"] == "True");
    let state = held.find_map(|condition| match condition["type"].as_str() {
        Some(state @ ("Complete" | "Failed" | "Suspended" | "FailureTarget" | "SuccessCriteriaMet")) => Some(state),
        _ => None,
    });
    let deleting = job["metadata"].get("deletionTimestamp").is_some();
    json!(state.unwrap_or(if deleting { "Terminating" } else { "Running" }))
}

fn job_duration(job: &Value, now: Timestamp) -> Value {
    let time = |field: &str| {
        job["status"][field]
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
    };
    match (time("startTime"), time("completionTime")) {
        (None, _) => json!(""),
        (Some(start), end) => json!(human(end.unwrap_or(now).as_second() - start.as_second())),
    }
}

fn last_seen(event: &Value, now: Timestamp) -> Value {
    let candidates = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["metadata"]["creationTimestamp"],
    ];
    let seen = candidates
        .into_iter()
        .find(|time| time.is_string())
        .unwrap_or(&Value::Null);
    json!(age(seen, now))
}

fn event_object(reference: &Value) -> Value {
    let kind = reference["kind"].as_str().unwrap_or_default().to_lowercase();
    json!(format!("{kind}/{}", reference["name"].as_str().unwrap_or_default()))
}
