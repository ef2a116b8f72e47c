//! GET and HEAD requests, and nothing more.

use ::http::{Method, Request, Response, StatusCode, header::CONTENT_LENGTH};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_util::{
    client::legacy::{Client, connect::HttpConnector},
    rt::TokioExecutor,
};
use release::tls::{Connector, Trust, connector};

use rules::error_text::with_causes;

use super::FetchError;

/// Files we read are lists and metadata; anything larger is not one of them.
const LARGEST_FILE_BYTES: usize = 16 * 1024 * 1024;

/// Trusts the given certificate, and without one, every server.
fn client(trust: Option<&Trust>) -> Result<Client<Connector, Empty<Bytes>>, FetchError> {
    let connector = connector(HttpConnector::new(), trust);
    let connector = connector.map_err(|error| FetchError::Other(format!("the repository's certificate: {error}")))?;
    Ok(Client::builder(TokioExecutor::new()).build(connector))
}

/// An answer that is one.
async fn ask(method: Method, url: &str, trust: Option<&Trust>) -> Result<Response<Incoming>, FetchError> {
    let other = |what: &dyn std::fmt::Display| FetchError::Other(format!("{url}: {what}"));
    let request = Request::builder().method(method).uri(url).body(Empty::new());
    let answer = client(trust)?.request(request.map_err(|error| other(&error))?).await;
    let answer = answer.map_err(|error| other(&with_causes(&error)))?;
    match answer.status() {
        StatusCode::OK => Ok(answer),
        StatusCode::NOT_FOUND => Err(FetchError::NotFound),
        status => Err(other(&status)),
    }
}

/// Reads a file.
pub(super) async fn get(url: &str, trust: Option<&Trust>) -> Result<Vec<u8>, FetchError> {
    let other = |what: &dyn std::fmt::Display| FetchError::Other(format!("{url}: {what}"));
    let response = ask(Method::GET, url, trust).await?;
    let body = Limited::new(response.into_body(), LARGEST_FILE_BYTES).collect().await;
    Ok(body.map_err(|error| other(&error))?.to_bytes().to_vec())
}

/// The size of a file.
pub(super) async fn size(url: &str, trust: Option<&Trust>) -> Result<u64, FetchError> {
    let other = |what: &dyn std::fmt::Display| FetchError::Other(format!("{url}: {what}"));
    let response = ask(Method::HEAD, url, trust).await?;
    let length = response
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|text| text.to_str().ok());
    length
        .and_then(|text| text.parse().ok())
        .ok_or_else(|| other(&"the answer has no content-length"))
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    use super::*;

    async fn answering(answer: &'static str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/harvester-release.yaml", listener.local_addr().unwrap());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await.unwrap();
            stream.write_all(answer.as_bytes()).await.unwrap();
        });
        url
    }

    #[tokio::test]
    async fn a_file_is_read_whole() {
        let url = answering("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nos: x").await;
        assert_eq!(get(&url, None).await, Ok(b"os: x".to_vec()));
    }

    #[tokio::test]
    async fn the_size_of_a_file_is_requested_without_reading_it() {
        let url = answering("HTTP/1.1 200 OK\r\ncontent-length: 5000000000\r\n\r\n").await;
        assert_eq!(size(&url, None).await, Ok(5_000_000_000));
        let url = answering("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(size(&url, None).await, Err(FetchError::NotFound));
    }

    #[tokio::test]
    async fn a_missing_file_is_distinguished_from_a_broken_server() {
        let url = answering("HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n").await;
        assert_eq!(get(&url, None).await, Err(FetchError::NotFound));
        let url = answering("HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\n\r\n").await;
        let error = get(&url, None).await.unwrap_err();
        assert!(error.to_string().contains("503"), "{error}");
    }

    #[tokio::test]
    async fn a_body_that_ends_early_is_an_error() {
        let url = answering("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nos: x").await;
        assert!(matches!(get(&url, None).await, Err(FetchError::Other(_))));
    }
}
