//! AdmissionReview in, AdmissionReview out. Pure: what the cluster is like comes in from outside.

use api::UpgradePlan;
use checks::{
    Cluster, FieldError,
    admission::{self, Reads},
    refusal,
};
use kube::core::{
    DynamicObject, Status,
    admission::{AdmissionRequest, AdmissionResponse, AdmissionReview, META_API_VERSION_V1, META_KIND, Operation},
};
use serde_json::Value;

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
}

/// One request of the API server, understood.
#[derive(Clone, Debug)]
pub struct Review {
    /// What is asked.
    pub question: Question,
    allowed: AdmissionResponse,
}

impl Review {
    /// Understands a request, or says why not: then the answer is there already, and refuses with 400.
    ///
    /// # Errors
    /// The answer to a request that cannot be understood.
    pub fn read(body: &[u8]) -> Result<Self, Box<Answer>> {
        let review: Value = serde_json::from_slice(body).map_err(|error| bad_request("", &error.to_string()))?;
        let uid = review["request"]["uid"].as_str().unwrap_or_default().to_owned();
        let bad = |why: &str| bad_request(&uid, why);
        let review: AdmissionReview<UpgradePlan> =
            serde_json::from_value(review).map_err(|error| bad(&error.to_string()))?;
        if review.types.kind != META_KIND || review.types.api_version != META_API_VERSION_V1 {
            return Err(bad("expected an AdmissionReview of admission.k8s.io/v1"));
        }
        let request: AdmissionRequest<UpgradePlan> = review.try_into().map_err(|_| bad("there is no request"))?;
        if request.kind.group != api::GROUP || request.kind.kind != "UpgradePlan" {
            return Err(bad("only UpgradePlans are looked at here"));
        }
        let allowed = AdmissionResponse::from(&request);
        let (object, old) = (request.object.map(Box::new), request.old_object.map(Box::new));
        let question = match (request.operation, object, old) {
            (Operation::Create, Some(plan), _) => Question::Create(plan),
            (Operation::Update, Some(new), Some(old)) => Question::Update { old, new },
            (Operation::Delete, _, Some(plan)) => Question::Delete(plan),
            (operation, ..) => {
                return Err(bad(&format!(
                    "{operation:?} came without its object, or is not looked at"
                )));
            }
        };
        Ok(Self { question, allowed })
    }

    /// What must be known of the cluster to validate.
    #[must_use]
    pub fn reads(&self) -> Reads {
        match &self.question {
            Question::Create(plan) => admission::create_reads(plan),
            Question::Update { old, new } => admission::update_reads(old, new),
            Question::Delete(_) => Reads::Nothing,
        }
    }

    /// The answer of the validating webhook.
    #[must_use]
    pub fn validate(self, cluster: &Cluster) -> Answer {
        let (plan, errors): (_, Vec<FieldError>) = match &self.question {
            Question::Create(plan) => (plan, admission::create(plan, cluster)),
            Question::Update { old, new } => (new, admission::update(old, new, cluster)),
            Question::Delete(plan) => (plan, admission::delete(plan)),
        };
        let name = plan.metadata.name.as_deref().unwrap_or_default();
        match refusal::status(name, &errors) {
            None => self.allowed.into_review(),
            Some(status) => denied(self.allowed, status),
        }
    }

    /// The answer of the mutating webhook: there is nothing to default.
    #[must_use]
    pub fn mutate(self) -> Answer {
        self.allowed.into_review()
    }
}

fn denied(mut response: AdmissionResponse, status: Status) -> Answer {
    response.allowed = false;
    response.result = status;
    response.into_review()
}

fn bad_request(uid: &str, why: &str) -> Box<Answer> {
    let mut response = AdmissionResponse::invalid("");
    uid.clone_into(&mut response.uid);
    Box::new(denied(response, Status::failure(why, "BadRequest").with_code(400)))
}
