//! The name of a VM, as it stands in the restore list.

use std::{fmt, str::FromStr};

use kube::ResourceExt;

/// Namespace and name of a VM. Its running instance has the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VmName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

/// A text that names no VM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a VM as NAMESPACE/NAME")]
pub struct NoVmName;

impl VmName {
    /// The name of a VM, or of its running instance.
    #[must_use]
    pub fn of<K: kube::Resource>(object: &K) -> Self {
        Self {
            namespace: object.namespace().unwrap_or_default(),
            name: object.name_any(),
        }
    }
}

impl fmt::Display for VmName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl FromStr for VmName {
    type Err = NoVmName;

    /// Both parts become parts of a request's path, so they must be what Kubernetes allows as names.
    fn from_str(text: &str) -> Result<Self, NoVmName> {
        let is_name = |part: &str| {
            let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-' || byte == b'.';
            !part.is_empty() && part.bytes().all(allowed) && !part.starts_with('.')
        };
        match text.split_once('/') {
            Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(Self {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            _ => Err(NoVmName),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_namespace_a_slash_and_a_name_and_nothing_that_leads_elsewhere() {
        let name: VmName = "default/web-1.a".parse().unwrap();
        assert_eq!(name.to_string(), "default/web-1.a");
        for text in [
            "", "web", "/web", "default/", "a/b/c", "a/..", "../b", "a/b?x", "A/b", "a b/c",
        ] {
            assert_eq!(text.parse::<VmName>(), Err(NoVmName), "{text:?}");
        }
    }
}
