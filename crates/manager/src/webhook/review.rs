//! AdmissionReview in, AdmissionReview out. Pure: the state of the cluster is an argument.

use std::collections::{BTreeMap, BTreeSet};

use api::{UpgradePlan, UpgradePlanSpec, UpgradePlanStatus, annotations, image::Sources};
use checks::{
    Cluster, FieldError,
    admission::{
        self, Reads, image, notes, options,
        powers::{self, Asker, Power},
    },
    refusal,
};
use jiff::Timestamp;
use k8s_openapi::{
    api::authentication::v1::UserInfo,
    apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time},
};
use kube::core::{
    DynamicObject, GroupVersionKind, Status,
    admission::{AdmissionResponse, AdmissionReview, META_API_VERSION_V1, META_KIND, Operation},
};
use serde::Deserialize;
use serde_json::json;

use super::measure::measure;

/// What the API server gets back.
pub type Answer = AdmissionReview<DynamicObject>;

/// What is asked about a plan.
#[derive(Clone, Debug)]
pub enum Question {
    /// May it be created?
    Create(Box<UpgradePlan>),
    /// May it be changed?
    Update {
        /// As it is.
        old: Box<UpgradePlan>,
        /// As it shall be.
        new: Box<UpgradePlan>,
    },
    /// May it be deleted?
    Delete(Box<UpgradePlan>),
    /// May its status be written, by another user than the manager? The manager's writes are not reviewed.
    Status {
        /// As it is.
        old: Box<UpgradePlan>,
        /// As it shall be.
        new: Box<UpgradePlan>,
    },
}

/// One request of the API server, understood.
#[derive(Clone, Debug)]
pub struct Review {
    /// What is asked.
    pub question: Question,
    /// Who asks.
    pub user: UserInfo,
    allowed: AdmissionResponse,
}

impl Review {
    /// Understands a request, or says why not: then the answer is there already, and refuses with 400.
    ///
    /// # Errors
    /// The answer to a request that cannot be understood.
    pub fn read(body: &[u8]) -> Result<Self, Box<Answer>> {
        measure(body).map_err(|error| bad_request("", &error.to_string()))?;
        let review: Wire = serde_json::from_slice(body).map_err(|error| bad_request(&uid(body), &error.to_string()))?;
        let request = review.request;
        let bad = |why: &str| bad_request(request.as_ref().map_or("", |request| &request.uid), why);
        if review.kind != META_KIND || review.api_version != META_API_VERSION_V1 {
            return Err(bad("expected an AdmissionReview of admission.k8s.io/v1"));
        }
        let Some(request) = request else {
            return Err(bad_request("", "there is no request"));
        };
        let bad = |why: &str| bad_request(&request.uid, why);
        if request.kind.group != api::GROUP || request.kind.kind != "UpgradePlan" {
            return Err(bad("only UpgradePlans are reviewed here"));
        }
        let plan = |wire: Option<WirePlan>| wire.map(|plan| Box::new(plan.into()));
        let part = request.sub_resource.as_deref().filter(|part| !part.is_empty());
        let question = match (part, request.operation, plan(request.object), plan(request.old_object)) {
            (None, Operation::Create, Some(plan), _) => Question::Create(plan),
            (None, Operation::Update, Some(new), Some(old)) => Question::Update { old, new },
            (None, Operation::Delete, _, Some(plan)) => Question::Delete(plan),
            (Some("status"), Operation::Update, Some(new), Some(old)) => Question::Status { old, new },
            _ => return Err(bad("the operation has no object, or is not reviewed")),
        };
        Ok(Self {
            question,
            user: request.user_info,
            allowed: response(&request.uid, true),
        })
    }

    /// What must be known of the cluster to validate.
    #[must_use]
    pub fn reads(&self) -> Reads {
        match &self.question {
            Question::Create(plan) => admission::create_reads(plan),
            Question::Update { old, new } => admission::update_reads(old, new),
            Question::Delete(_) | Question::Status { .. } => Reads::Nothing,
        }
    }

    /// The plan before and after, where it is made or changed.
    fn change(&self) -> Option<(Option<&UpgradePlan>, &UpgradePlan)> {
        match &self.question {
            Question::Create(plan) => Some((None, plan)),
            Question::Update { old, new } => Some((Some(old), new)),
            Question::Delete(_) | Question::Status { .. } => None,
        }
    }

    /// The permissions that the user needs in addition to the request itself.
    #[must_use]
    pub fn powers(&self) -> BTreeSet<Power> {
        let used = self.change().map(|(old, new)| powers::uses(old, new));
        used.into_iter().flatten().map(|(power, _)| power).collect()
    }

    /// The name of the plan that is asked about; empty where it gets one.
    #[must_use]
    pub fn plan_name(&self) -> &str {
        let plan = match &self.question {
            Question::Create(plan) | Question::Delete(plan) => plan,
            Question::Update { new, .. } | Question::Status { new, .. } => new,
        };
        plan.metadata.name.as_deref().unwrap_or_default()
    }

    /// The answer of the validating webhook.
    #[must_use]
    pub fn validate(mut self, cluster: &Cluster, asker: &Asker, sources: &Sources) -> Answer {
        let (plan, mut errors): (_, Vec<FieldError>) = match &self.question {
            Question::Create(plan) => (plan, admission::create(plan, cluster)),
            Question::Update { old, new } => (new, admission::update(old, new, cluster)),
            Question::Delete(plan) => (plan, admission::delete(plan)),
            Question::Status { old, new } => (new, notes::status_refused(old, new)),
        };
        if let Some((old, new)) = self.change() {
            errors.extend(powers::refused(old, new, asker));
            errors.extend(notes::refused(old, new));
            errors.extend(notes::too_long(old, new));
            errors.extend(options::not_understood(old, new));
            errors.extend(image::not_allowed(old, new, sources));
        }
        if let Question::Create(plan) = &self.question {
            let warnings = admission::warnings(plan, cluster);
            self.allowed.warnings = Some(warnings).filter(|warnings| !warnings.is_empty());
        }
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        match refusal::status(name, &errors) {
            None => self.allowed.into_review(),
            Some(status) => denied(self.allowed, status),
        }
    }

    /// The answer of the mutating webhook: uses of options that need a separate permission are recorded, and what a user
    /// wrote there is replaced.
    #[must_use]
    pub fn mutate(self, now: Timestamp) -> Answer {
        let by = self.user.username.as_deref().unwrap_or_default();
        let patch = self.change().map(|(old, new)| {
            let wanted = powers::noted(old, new, by, now);
            override_patch(new, wanted)
        });
        match patch.filter(|patch| !patch.0.is_empty()) {
            None => self.allowed.into_review(),
            Some(patch) => match self.allowed.clone().with_patch(patch) {
                Ok(response) => response.into_review(),
                Err(error) => denied(
                    self.allowed,
                    Status::failure(&error.to_string(), "InternalError").with_code(500),
                ),
            },
        }
    }
}

/// What makes a plan say that of its overrides.
fn override_patch(plan: &UpgradePlan, wanted: Option<String>) -> json_patch::Patch {
    let path = format!("/metadata/annotations/{}", annotations::OVERRIDES.replace('/', "~1"));
    let operations = match (plan.annotation(annotations::OVERRIDES), wanted) {
        (Some(known), Some(wanted)) if known == wanted => json!([]),
        (None, None) => json!([]),
        (_, None) => json!([{"op": "remove", "path": path}]),
        (_, Some(wanted)) if plan.metadata.annotations.is_some() => {
            json!([{"op": "add", "path": path, "value": wanted}])
        }
        (_, Some(wanted)) => {
            json!([{"op": "add", "path": "/metadata/annotations", "value": {annotations::OVERRIDES: wanted}}])
        }
    };
    serde_json::from_value(operations).unwrap_or_default()
}

fn denied(mut response: AdmissionResponse, status: Status) -> Answer {
    response.allowed = false;
    response.result = status;
    response.into_review()
}

fn bad_request(uid: &str, why: &str) -> Box<Answer> {
    let status = Status::failure(why, "BadRequest").with_code(400);
    Box::new(denied(response(uid, false), status))
}

fn response(uid: &str, allowed: bool) -> AdmissionResponse {
    let mut response = AdmissionResponse::invalid("");
    uid.clone_into(&mut response.uid);
    response.allowed = allowed;
    response.result = Status::default();
    response
}

/// The request's identifier, of a review that is otherwise not understood.
fn uid(body: &[u8]) -> String {
    #[derive(Deserialize)]
    struct Whole {
        request: Part,
    }
    #[derive(Deserialize)]
    struct Part {
        uid: String,
    }
    serde_json::from_slice(body).map_or_else(|_| String::new(), |whole: Whole| whole.request.uid)
}

/// What is read of a review. What is not named here is passed over, and takes no memory.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Wire {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    request: Option<WireRequest>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRequest {
    uid: String,
    kind: GroupVersionKind,
    operation: Operation,
    sub_resource: Option<String>,
    #[serde(default)]
    user_info: UserInfo,
    object: Option<WirePlan>,
    old_object: Option<WirePlan>,
}

/// A plan, but for what grows without bound and is never looked at: who owns which of its fields.
#[derive(Deserialize)]
struct WirePlan {
    metadata: WireMetadata,
    spec: UpgradePlanSpec,
    status: Option<UpgradePlanStatus>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireMetadata {
    name: Option<String>,
    generate_name: Option<String>,
    uid: Option<String>,
    generation: Option<i64>,
    creation_timestamp: Option<Time>,
    deletion_timestamp: Option<Time>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    finalizers: Option<Vec<String>>,
}

impl From<WirePlan> for UpgradePlan {
    fn from(wire: WirePlan) -> Self {
        let WirePlan { metadata, spec, status } = wire;
        Self {
            metadata: ObjectMeta {
                name: metadata.name,
                generate_name: metadata.generate_name,
                uid: metadata.uid,
                generation: metadata.generation,
                creation_timestamp: metadata.creation_timestamp,
                deletion_timestamp: metadata.deletion_timestamp,
                labels: metadata.labels,
                annotations: metadata.annotations,
                finalizers: metadata.finalizers,
                ..ObjectMeta::default()
            },
            spec,
            status,
        }
    }
}
