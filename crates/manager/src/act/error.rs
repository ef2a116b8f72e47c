//! Why a decision could not be carried out.

/// Why a decision could not be carried out to its end. The rest of it will be decided again.
#[derive(Debug, thiserror::Error)]
pub enum ActError {
    /// Another manager may be at work.
    #[error("the lease is lost")]
    NotLeader,
    /// The API server refused or did not answer.
    #[error("failed to {doing}: {source}")]
    Kube {
        /// What was being done.
        doing: String,
        /// Why it failed.
        source: Box<kube::Error>,
    },
    /// An object of that name exists and is not ours.
    #[error("{object} exists and does not belong to this UpgradePlan; delete it to continue")]
    NotOurs {
        /// The object.
        object: String,
    },
    /// A Secret whose key this manager does not have, or that exists and may contain another key: the manager may not read it.
    #[error("Secret {secret} cannot be used: {why}; another certificate is made")]
    LostKey {
        /// Its name.
        secret: String,
        /// What is wrong.
        why: &'static str,
    },
    /// No pod can run: the account that it is to run as is not there.
    #[error(
        "{object} is not created: ServiceAccount {account}, which its pods run as, {why}; install the chart (or `make deploy`) \
         of this release, which has it, or choose another with {flag}"
    )]
    NoAccount {
        /// What was to be created.
        object: String,
        /// The account, with its namespace.
        account: String,
        /// What is wrong with it.
        why: String,
        /// What chooses another.
        flag: &'static str,
    },
    /// The plan that was decided on is not the newest.
    #[error("the UpgradePlan has changed in the meantime")]
    Outdated,
    /// An object could not be built.
    #[error("failed to build an object")]
    Build(#[from] serde_json::Error),
    /// Several errors, each with its own reason.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Several(Vec<Self>),
}

impl ActError {
    /// Another client changed the object in the meantime: not an error, but a reason to reconcile again.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        match self {
            Self::Outdated => true,
            Self::Kube { source, .. } => matches!(source.as_ref(), kube::Error::Api(status) if status.code == 409),
            Self::Several(errors) => errors.iter().all(Self::is_conflict),
            _ => false,
        }
    }
}

/// What failed while a decision was carried out.
#[derive(Default)]
pub(super) struct Failures(Vec<ActError>);

impl Failures {
    pub(super) fn is_any(&self) -> bool {
        !self.0.is_empty()
    }

    pub(super) fn add(&mut self, error: ActError) {
        self.0.push(error);
    }

    /// All of them as one. A conflict in addition to an error is ignored: the plan is reconciled again anyway.
    pub(super) fn into_result(self) -> Result<(), ActError> {
        let mut errors = self.0;
        if !errors.iter().all(ActError::is_conflict) {
            errors.retain(|error| !error.is_conflict());
        }
        match errors.len() {
            0 => Ok(()),
            1 => errors.pop().map_or(Ok(()), Err),
            _ => Err(ActError::Several(errors)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: u16) -> ActError {
        let status = kube::core::Status::failure(&format!("answer {code}"), "Any").with_code(code);
        ActError::Kube {
            doing: "patch".to_owned(),
            source: Box::new(kube::Error::Api(status.boxed())),
        }
    }

    fn outcome(codes: &[u16]) -> Result<(), ActError> {
        let mut failures = Failures::default();
        codes.iter().for_each(|code| failures.add(refused(*code)));
        failures.into_result()
    }

    #[test]
    fn what_failed_is_reported_whole_and_conflicts_alone_are_another_look() {
        assert!(outcome(&[]).is_ok());
        assert!(outcome(&[409, 409]).unwrap_err().is_conflict());
        let both = outcome(&[500, 409, 403]).unwrap_err();
        assert!(!both.is_conflict());
        let text = both.to_string();
        assert!(
            text.contains("answer 500") && text.contains("; failed to patch"),
            "{text}"
        );
        assert!(!text.contains("409"), "{text}");
    }
}
