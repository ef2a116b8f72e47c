//! The head of a request: bytes in, what matters of it out. Pure.

use super::HEADERS;

/// What a client requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub(super) method: Method,
    /// Path and query, or a whole URL, as sent.
    pub(super) target: String,
    /// Whether another request may follow on this connection.
    pub(super) keep_alive: bool,
    pub(super) range: Option<String>,
    pub(super) if_range: Option<String>,
    pub(super) if_none_match: Option<String>,
    pub(super) if_modified_since: Option<String>,
}

/// The methods that a read-only server distinguishes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Method {
    #[default]
    Get,
    Head,
    Other,
}

/// What the bytes so far are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Head {
    /// The beginning of a head.
    Incomplete,
    /// A whole head of so many bytes.
    Complete(Request, usize),
    /// Nothing that can be answered otherwise than by this status.
    Refused(u16),
}

/// Reads the head of a request.
pub(super) fn parse(bytes: &[u8]) -> Head {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut raw = httparse::Request::new(&mut headers);
    let length = match raw.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Head::Incomplete,
        Err(httparse::Error::TooManyHeaders) => return Head::Refused(431),
        Err(httparse::Error::Version) => return Head::Refused(505),
        Err(_) => return Head::Refused(400),
    };
    let method = match raw.method {
        Some("GET") => Method::Get,
        Some("HEAD") => Method::Head,
        _ => Method::Other,
    };
    let modern = raw.version == Some(1);
    if modern && values(raw.headers, "host").count() != 1 {
        return Head::Refused(400);
    }
    let connection = |token: &str| {
        values(raw.headers, "connection")
            .flat_map(|value| value.split(','))
            .any(|value| value.trim().eq_ignore_ascii_case(token))
    };
    // A body is never read, so nothing after it would be understood.
    let has_body = values(raw.headers, "transfer-encoding").next().is_some()
        || values(raw.headers, "content-length").any(|length| length.trim() != "0");
    let keep_alive = !has_body
        && method != Method::Other
        && if modern {
            !connection("close")
        } else {
            connection("keep-alive")
        };
    let request = Request {
        method,
        target: raw.path.unwrap_or_default().to_owned(),
        keep_alive,
        range: only(raw.headers, "range"),
        if_range: only(raw.headers, "if-range"),
        if_none_match: only(raw.headers, "if-none-match"),
        if_modified_since: only(raw.headers, "if-modified-since"),
    };
    Head::Complete(request, length)
}

/// All values of a header; one that is not text counts as empty.
fn values<'a>(headers: &'a [httparse::Header<'a>], name: &'a str) -> impl Iterator<Item = &'a str> {
    let headers = headers
        .iter()
        .filter(move |header| header.name.eq_ignore_ascii_case(name));
    headers.map(|header| std::str::from_utf8(header.value).unwrap_or_default())
}

/// The value of a header that is there once.
fn only(headers: &[httparse::Header<'_>], name: &str) -> Option<String> {
    let mut values = values(headers, name);
    let value = values.next()?;
    values.next().is_none().then(|| value.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use rstest::rstest;

    use super::*;

    fn complete(text: &str) -> Request {
        match parse(text.as_bytes()) {
            Head::Complete(request, length) => {
                assert_eq!(length, text.len());
                request
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn what_matters_of_a_request_is_read() {
        let request = complete("GET /a?b HTTP/1.1\r\nHost: x\r\nrange:  bytes=0-1 \r\nIf-Range: \"e\"\r\n\r\n");
        assert_eq!((request.method, request.target.as_str()), (Method::Get, "/a?b"));
        assert!(request.keep_alive);
        assert_eq!(request.range.as_deref(), Some("bytes=0-1"));
        assert_eq!(request.if_range.as_deref(), Some("\"e\""));
    }

    #[rstest]
    #[case("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")]
    #[case("GET / HTTP/1.1\r\nHost: x\r\nconnection: foo, Close\r\n\r\n")]
    #[case("GET / HTTP/1.0\r\n\r\n")]
    #[case("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n")]
    #[case("GET / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 9\r\n\r\n")]
    #[case("GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")]
    #[case("POST / HTTP/1.1\r\nHost: x\r\n\r\n")]
    fn nothing_is_read_after_these(#[case] text: &str) {
        assert!(!complete(text).keep_alive);
    }

    #[rstest]
    #[case("GET / HTTP/1.1\r\n\r\n", 400)]
    #[case("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400)]
    #[case("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400)]
    #[case("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505)]
    #[case("\x16\x03\x01\x02", 400)]
    fn what_cannot_be_understood_is_refused(#[case] text: &str, #[case] status: u16) {
        assert_eq!(parse(text.as_bytes()), Head::Refused(status));
    }

    #[test]
    fn two_ranges_headers_are_none() {
        let request = complete("GET / HTTP/1.1\r\nHost: x\r\nRange: bytes=0-1\r\nRange: bytes=2-3\r\n\r\n");
        assert_eq!(request.range, None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&bytes);
            let _ = parse(&[b"GET / HTTP/1.1\r\nHost: x\r\n".as_slice(), &bytes].concat());
        }
    }
}
