//! Identities: users, groups, and their bearer tokens. No permissions here (see `rbac`).

use std::collections::BTreeMap;

/// A user with the groups the API server believes them to be in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Identity {
    /// User name (`system:serviceaccount:ns:name` for service accounts).
    pub user: String,
    /// Groups, `system:authenticated` included where it applies.
    pub groups: Vec<String>,
}

impl Identity {
    /// A user who is authenticated and in no other group.
    pub fn user(name: &str) -> Self {
        Self {
            user: name.into(),
            groups: vec!["system:authenticated".into()],
        }
    }

    /// The cluster administrator: may do everything.
    pub fn admin() -> Self {
        Self {
            user: "kubernetes-admin".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
        }
    }

    /// The anonymous user.
    pub fn anonymous() -> Self {
        Self {
            user: "system:anonymous".into(),
            groups: vec!["system:unauthenticated".into()],
        }
    }

    /// A service account.
    pub fn service_account(namespace: &str, name: &str) -> Self {
        Self {
            user: format!("system:serviceaccount:{namespace}:{name}"),
            groups: vec![
                "system:serviceaccounts".into(),
                format!("system:serviceaccounts:{namespace}"),
                "system:authenticated".into(),
            ],
        }
    }

    /// Whether RBAC does not apply.
    pub fn is_master(&self) -> bool {
        self.groups.iter().any(|g| g == "system:masters")
    }
}

/// Tokens handed out so far. They are names, not secrets, but for one that is required: the server listens on loopback
/// only.
#[derive(Default)]
pub(crate) struct Tokens {
    known: BTreeMap<String, Identity>,
    pub(crate) is_required: bool,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("known", &self.known.len())
            .finish_non_exhaustive()
    }
}

impl Tokens {
    pub(crate) fn issue(&mut self, who: &Identity) -> String {
        let readable: String = who
            .user
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '.' })
            .collect();
        // Users whose names differ only in punctuation must not share a token.
        let base = format!("embedded-{readable}");
        let mut token = base.clone();
        let mut attempt = 1;
        while self.known.get(&token).is_some_and(|owner| owner != who) {
            attempt += 1;
            token = format!("{base}-{attempt}");
        }
        self.known.insert(token.clone(), who.clone());
        token
    }

    /// Admits clients with this token, and none without one.
    pub(crate) fn require(&mut self, token: &str, who: Identity) {
        self.known.insert(token.to_owned(), who);
        self.is_required = true;
    }

    pub(crate) fn identity(&self, token: &str) -> Option<Identity> {
        self.known.get(token).cloned()
    }
}
