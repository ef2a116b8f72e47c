//! The absolute name of a Service. A name like `up-repo.harvester-system` is looked up in every search domain of a machine,
//! and the owner of any of these domains can answer. The absolute name is looked up only in the cluster.

use std::fs;

/// Where a pod finds the search domains that its cluster has given it.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// The default domain of a cluster.
const DOMAIN: &str = "cluster.local";

/// A URL whose host is `NAME.NAMESPACE`, with the absolute name of that Service, as this machine knows its cluster; outside
/// of a cluster as it is.
#[must_use]
pub fn here(url: &str) -> String {
    absolute(url, &fs::read_to_string(RESOLV_CONF).unwrap_or_default())
}

/// The names of a Service that ends in `.svc`: without a domain, and with that of this cluster.
#[must_use]
pub fn names_of(service: &str) -> Vec<String> {
    let text = fs::read_to_string(RESOLV_CONF).unwrap_or_default();
    let domain = domain(&text).unwrap_or(DOMAIN);
    let short = service.strip_suffix(".svc").unwrap_or(service);
    vec![service.to_owned(), short.to_owned(), format!("{service}.{domain}")]
}

/// The same, by the text of a `resolv.conf`.
fn absolute(url: &str, resolv_conf: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let is_service = host.split('.').count() == 2 && !host.contains(':');
    match domain(resolv_conf).filter(|_| is_service) {
        Some(domain) => format!("{scheme}://{host}.svc.{domain}.{path}"),
        None => url.to_owned(),
    }
}

/// The domain of the cluster: Kubernetes has pods search `NAMESPACE.svc.DOMAIN`, `svc.DOMAIN` and `DOMAIN`.
fn domain(resolv_conf: &str) -> Option<&str> {
    // The last line counts.
    let mut lines = resolv_conf.lines().rev();
    let searched = lines.find_map(|line| line.trim().strip_prefix("search"))?;
    let domain = searched
        .split_whitespace()
        .find_map(|entry| entry.strip_prefix("svc."))?;
    Some(domain.trim_end_matches('.')).filter(|domain| !domain.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = "search harvester-system.svc.cluster.local svc.cluster.local cluster.local corp.example\n\
        nameserver 10.53.0.10\noptions ndots:5\n";

    #[test]
    fn s07_the_repository_is_requested_by_its_absolute_name() {
        let url = api::names::repo_url("up", api::names::RepoScheme::Https);
        assert_eq!(
            absolute(&url, POD),
            "https://up-repo.harvester-system.svc.cluster.local./harvester-iso"
        );
        let other = POD.replace("cluster.local", "k8s.corp.example");
        assert!(absolute(&url, &other).contains(".svc.k8s.corp.example./"));
    }

    #[test]
    fn outside_of_a_cluster_and_for_other_hosts_a_url_stays_as_it_is() {
        let url = api::names::repo_url("up", api::names::RepoScheme::Http);
        for text in ["", "nameserver 1.1.1.1\n", "search corp.example\n", "search svc.\n"] {
            assert_eq!(absolute(&url, text), url);
        }
        for other in [
            "http://localhost/x",
            "http://127.0.0.1:8080/x",
            "http://a.b.c/x",
            "nonsense",
        ] {
            assert_eq!(absolute(other, POD), other);
        }
    }
}
