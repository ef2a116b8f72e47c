//! One request from beginning to end: what is asked, may it be, faults, the verb, the record. Each step is elsewhere.

use std::sync::Arc;

use http::{Request, Response, header, request::Parts};
use hyper::body::Bytes;
use serde_json::Value;

use crate::{
    BODY_LIMIT, discovery,
    faults::{Fault, ReadAttempt, ReadFault, WriteAttempt},
    history::{Verb, Write},
    identity::Identity,
    rbac::{self, Question},
    request::{self, Call, Form, Query},
    response::{self, Body, ReplyLost},
    server::{ApiServer, Server},
    status::{ApiError, ApiResult},
    table, verb,
};

/// What a verb answers.
pub(crate) enum Answer {
    /// One object, shown in the form the client wants.
    Object {
        code: u16,
        object: Arc<Value>,
        changed: bool,
        warnings: Vec<String>,
    },
    /// Something that is not an object of the kind (a Status, a review).
    Value { code: u16, value: Value, changed: bool },
    /// Anything else, ready to send.
    Ready(Response<Body>),
}

impl ApiServer {
    /// The one function: a request of `who` in, the answer out. Watches stream; everything else is whole.
    pub async fn handle(&self, who: &Identity, request: Request<Bytes>) -> Response<Body> {
        let (parts, body) = request.into_parts();
        let outcome = if body.len() > BODY_LIMIT {
            Err(ApiError::too_large(BODY_LIMIT))
        } else {
            self.respond(who, &parts, body).await
        };
        outcome.unwrap_or_else(|error| response::error(&error))
    }

    async fn respond(&self, who: &Identity, parts: &Parts, body: Bytes) -> ApiResult<Response<Body>> {
        let server = &*self.0;
        let path = parts.uri.path();
        let accept = request::header_text(parts, header::ACCEPT);
        if let Some(answer) = discovery::answer(server, who, &parts.method, path, &accept) {
            return answer;
        }
        let Some(target) = request::target(&server.registry(), path) else {
            return Err(ApiError::no_such_path());
        };
        let target = target?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let verb = request::verb(&parts.method, &target, &query)?;
        let mut call = Call {
            verb,
            form: request::form(&accept)?,
            content_type: request::header_text(parts, header::CONTENT_TYPE),
            user: who.user.clone(),
            groups: who.groups.clone(),
            user_agent: request::header_text(parts, header::USER_AGENT),
            target,
            query,
            body,
            sequence: 0,
        };
        if server.config.enforce_rbac {
            authorize(server, who, &call, verb).inspect_err(|_| server.store.count_forbidden(&who.user))?;
        }
        if call.kind().create_only {
            return verb::review(server, who, &call).map(|answer| render(server, &call, answer));
        }
        if verb.is_write() {
            self.write(who, &mut call).await
        } else {
            read(self, who, &call)
        }
    }

    async fn write(&self, who: &Identity, call: &mut Call) -> ApiResult<Response<Body>> {
        let server = &*self.0;
        let (sequence, of_user) = server.store.number_write(&who.user);
        call.sequence = sequence;
        let fault = server.faults().for_write(&WriteAttempt {
            sequence,
            of_user,
            who,
            verb: call.verb,
            resource: &call.kind().resource,
            namespace: call.namespace(),
            name: call.name(),
            subresource: call.subresource(),
        });
        let outcome = match &fault {
            Fault::Reject(code) => Err(injected(*code)),
            Fault::ConflictBefore => Err(ApiError::modified(call.kind(), call.name())),
            Fault::None | Fault::LoseReply | Fault::CrashAfter(_) => verb::write(server, who, call).await,
        };
        record(server, call, &outcome);
        let mut response = match outcome {
            Ok(answer) => render(server, call, answer),
            Err(error) => response::error(&error),
        };
        match fault {
            Fault::LoseReply => {
                response = response::error(&ApiError::internal("injected: the reply was lost"));
                response.extensions_mut().insert(ReplyLost);
            }
            Fault::CrashAfter(done) => {
                done.notify_one();
                std::future::pending::<()>().await;
            }
            Fault::None | Fault::Reject(_) | Fault::ConflictBefore => {}
        }
        Ok(response)
    }
}

fn injected(code: u16) -> ApiError {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    ApiError::new(code, reason, format!("injected: refused with {code}"))
}

fn read(api: &ApiServer, who: &Identity, call: &Call) -> ApiResult<Response<Body>> {
    let server = &*api.0;
    server.store.count_read();
    let attempt = ReadAttempt {
        who,
        verb: call.verb,
        resource: &call.kind().resource,
        namespace: call.namespace(),
        name: call.name_in_question(),
        subresource: call.subresource(),
    };
    let older_by = match server.faults().for_read(&attempt) {
        ReadFault::None => 0,
        ReadFault::Reject(code) => return Err(injected(code)),
        ReadFault::StaleList { older_by } => older_by,
    };
    let answer = match call.verb {
        Verb::Watch => Answer::Ready(verb::watch(api, call)?),
        Verb::List => Answer::Ready(verb::list(server, call, older_by)?),
        _ => verb::get(server, call)?,
    };
    Ok(render(server, call, answer))
}

/// Whether a user who applies a missing object may create it, by its name.
pub(crate) fn may_create(server: &Server, call: &Call) -> ApiResult<()> {
    let who = Identity {
        user: call.user.clone(),
        groups: call.groups.clone(),
    };
    if !server.config.enforce_rbac {
        return Ok(());
    }
    authorize(server, &who, call, Verb::Create).inspect_err(|_| server.store.count_forbidden(&who.user))
}

fn authorize(server: &Server, who: &Identity, call: &Call, verb: Verb) -> ApiResult<()> {
    let kind = call.kind();
    let question = Question {
        verb: verb.name(),
        group: &kind.group,
        resource: &kind.plural,
        subresource: call.subresource(),
        namespace: call.namespace(),
        name: call.name_in_question(),
        path: None,
    };
    // All authenticated users may review their own access.
    let about_self = kind.kind.starts_with("SelfSubject");
    if about_self || rbac::allows(&server.store, who, &question) {
        return Ok(());
    }
    Err(ApiError::forbidden(kind, question.name, &rbac::refusal(who, &question)))
}

/// Keeps what was asked and how it ended.
fn record(server: &Server, call: &Call, outcome: &ApiResult<Answer>) {
    let (code, changed, object) = match outcome {
        Ok(Answer::Object {
            code, object, changed, ..
        }) => (*code, *changed, Some(Arc::clone(object))),
        Ok(Answer::Value { code, changed, .. }) => (*code, *changed, None),
        Ok(Answer::Ready(response)) => (response.status().as_u16(), false, None),
        Err(error) => (error.code, false, None),
    };
    // A create names its object only in the body.
    let named = object.as_ref().and_then(|object| object["metadata"]["name"].as_str());
    let name = named.unwrap_or_else(|| call.name()).to_owned();
    server.store.record(Write {
        sequence: call.sequence,
        at: server.now(),
        verb: call.verb,
        user: call.user.clone(),
        resource: call.kind().resource.clone(),
        namespace: call.namespace().to_owned(),
        name,
        subresource: call.subresource().map(str::to_owned),
        code,
        refusal: outcome.as_ref().err().map(|error| error.message.clone()),
        sent: call.body.clone(),
        changed,
        object,
    });
}

fn render(server: &Server, call: &Call, answer: Answer) -> Response<Body> {
    let mut response = match answer {
        Answer::Ready(response) => return response,
        Answer::Value { code, value, .. } => response::json(code, &value),
        Answer::Object {
            code, object, warnings, ..
        } => {
            let mut response = match call.form {
                Form::Whole => response::json_text(code, server.store.text(&call.kind().resource, &object)),
                Form::Table => {
                    let columns = table::Columns::of(call.kind(), call.query.get("includeObject"), server.now());
                    response::json(code, &columns.table(std::slice::from_ref(&object), &Value::Null))
                }
                Form::Metadata => response::json(code, &table::metadata_only(&object)),
            };
            for warning in &warnings {
                response::warn(&mut response, warning);
            }
            response
        }
    };
    if let Some(warning) = &call.kind().warning {
        response::warn(&mut response, warning);
    }
    response
}
