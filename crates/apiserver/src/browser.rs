//! Refuses requests of pages in browsers: a rehearsal listens on loopback, where any open page can send requests.
//!
//! A page gives itself away by an `Origin`; by the name that it was loaded under, when it has made its own name lead to
//! loopback (DNS rebinding); and it cannot send the types of content that Kubernetes takes without asking first.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use http::{HeaderMap, Method, header};

use crate::status::{ApiError, ApiResult};

/// Types of content that writes may have, without their parameters.
const CONTENT: [&str; 8] = [
    "application/json",
    "application/yaml",
    "application/vnd.kubernetes.protobuf",
    "application/cbor",
    "application/json-patch+json",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/apply-patch+yaml",
];

/// The listening address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Door {
    address: Option<SocketAddr>,
}

impl Door {
    pub(crate) fn of(address: Option<SocketAddr>) -> Self {
        Self { address }
    }

    /// Lets programs in.
    pub(crate) fn admit(&self, method: &Method, headers: &HeaderMap) -> ApiResult<()> {
        let text = |name: header::HeaderName| headers.get(name).map(|value| value.to_str().unwrap_or_default());
        if text(header::ORIGIN).is_some() {
            return Err(refused("requests of web pages (with an Origin header) are not served"));
        }
        let host = text(header::HOST).unwrap_or_default();
        if !self.is_ours(host) {
            let host: String = host.chars().take(100).filter(|c| !c.is_control()).collect();
            return Err(refused(&format!(
                "the Host \"{host}\" is not this server: use the address in the kubeconfig"
            )));
        }
        // To delete takes a preflight request in a browser, and has no body with most clients.
        if [Method::POST, Method::PUT, Method::PATCH].contains(method) {
            // None at all is JSON, as for Kubernetes, and some clients send none. A page can do that too, but not without an
            // Origin.
            let content = text(header::CONTENT_TYPE).unwrap_or(CONTENT[0]);
            let media = content.split(';').next().unwrap_or_default().trim();
            if !CONTENT.iter().any(|known| known.eq_ignore_ascii_case(media)) {
                let why = format!("writes need a Content-Type of {}", CONTENT.join(", "));
                return Err(ApiError::new(415, "UnsupportedMediaType", why));
            }
        }
        Ok(())
    }

    /// Whether a Host is loopback, or where this server listens.
    fn is_ours(&self, host: &str) -> bool {
        let name = match (host.strip_prefix('['), host.rsplit_once(':')) {
            (Some(rest), _) => rest.split(']').next().unwrap_or_default(),
            (None, Some((name, _))) => name,
            (None, None) => host,
        };
        let is_here = |ip: IpAddr| {
            let ip = ip.to_canonical();
            ip.is_loopback() || self.address.is_some_and(|address| address.ip().to_canonical() == ip)
        };
        name.eq_ignore_ascii_case("localhost")
            || name.parse::<IpAddr>().is_ok_and(is_here)
            || name.parse::<Ipv6Addr>().is_ok_and(|ip| is_here(ip.into()))
    }
}

fn refused(why: &str) -> ApiError {
    ApiError::new(403, "Forbidden", why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_loopback_and_the_address_itself_are_ours() {
        let door = Door::of("192.0.2.7:8001".parse().ok());
        for host in [
            "localhost",
            "LocalHost:8001",
            "127.0.0.1:8001",
            "127.1.2.3",
            "[::1]:8001",
            "[::1]",
            "[::ffff:127.0.0.1]:1",
            "192.0.2.7:8001",
        ] {
            assert!(door.is_ours(host), "{host}");
        }
        for host in [
            "",
            "evil.example",
            "evil.example:8001",
            "localhost.evil.example",
            "127.0.0.1.evil.example:8001",
            "192.0.2.8",
            "[fe80::1]:8001",
            "0.0.0.0:8001",
            "[",
            ":8001",
        ] {
            assert!(!door.is_ours(host), "{host}");
        }
    }

    #[test]
    fn what_kubectl_sends_is_let_in_and_what_pages_send_is_not() {
        let door = Door::of(None);
        let ask = |method: &str, extra: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            headers.insert("host", http::HeaderValue::from_static("127.0.0.1:8001"));
            for (name, value) in extra {
                headers.insert(*name, http::HeaderValue::from_static(value));
            }
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            door.admit(&method, &headers).map_err(|error| error.code)
        };
        for content in CONTENT {
            assert_eq!(ask("PATCH", &[("content-type", content)]), Ok(()));
        }
        assert_eq!(
            ask("POST", &[("content-type", "Application/JSON; charset=utf-8")]),
            Ok(())
        );
        assert_eq!((ask("GET", &[]), ask("DELETE", &[])), (Ok(()), Ok(())));
        for content in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=x",
            "",
        ] {
            assert_eq!(ask("POST", &[("content-type", content)]), Err(415));
        }
        assert_eq!(ask("POST", &[("content-type", "")]), Err(415));
        assert_eq!(
            ask("POST", &[]),
            Ok(()),
            "clients of Kubernetes do that; a page has an Origin then"
        );
        assert_eq!(ask("GET", &[("origin", "http://evil.example")]), Err(403));
        assert_eq!(ask("GET", &[("origin", "null")]), Err(403));
    }
}
