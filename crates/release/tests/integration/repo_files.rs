//! What the repository serves, through real HTTP.

use crate::support;
use crate::support::{Running, ask, one};
use release::{
    repo::Limits,
    testing::{SAMPLE_RELEASE, Sources, sample_files},
};
use tokio::{io::AsyncWriteExt, net::TcpStream};

const ROOTFS: &str = "/harvester-iso/rootfs.squashfs";

async fn sample() -> (Sources, Running) {
    let sources = Sources::sample();
    sources.link("latest.yaml", "harvester-release.yaml");
    sources.link("passwd", "/etc/passwd");
    sources.link("shadow", "../../etc/shadow");
    sources.link("round", "round");
    sources.link("lists", "bundle/harvester/images-lists");
    sources.add("odd/a b&<c>?#%41.txt", b"odd");
    let running = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    (sources, running)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_file_comes_with_its_bytes_and_headers() {
    let (_sources, server) = sample().await;
    for (path, content) in sample_files() {
        let target = format!("/harvester-iso/{path}");
        let reply = server.get(&target, "").await;
        assert_eq!(reply.status, 200, "{path}");
        assert!(reply.body == content, "{path}");
        assert_eq!(reply.header("content-length"), Some(content.len().to_string().as_str()));
        assert_eq!(reply.header("accept-ranges"), Some("bytes"));
        for name in ["etag", "last-modified", "date", "content-type"] {
            assert!(reply.header(name).is_some(), "{path} has no {name}");
        }
        let head = ask(server.address, "HEAD", &target, "").await;
        assert_eq!(head.body, b"");
        assert_eq!(head.header("content-length"), reply.header("content-length"));
        assert_eq!(head.header("etag"), reply.header("etag"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn paths_with_doubled_slashes_odd_names_and_links_work() {
    let (_sources, server) = sample().await;
    let status = async |target: &str| server.get(target, "").await.status;
    assert_eq!(status("/harvester-iso//bundle//metadata.yaml?x=1").await, 200);
    assert_eq!(status("http://repo/harvester-iso/bundle/metadata.yaml").await, 200);
    let odd = server
        .get("/harvester-iso/odd/a%20b%26%3Cc%3E%3F%23%2541.txt", "")
        .await;
    assert_eq!(odd.text(), "odd");
    assert_eq!(
        server.get("/harvester-iso/latest.yaml", "").await.text(),
        SAMPLE_RELEASE
    );
    assert_eq!(status("/harvester-iso/lists/harvester-images-v1.8.0.txt").await, 200);
    assert_eq!(status("/harvester-iso/none.yaml").await, 404);
    assert_eq!(status("/harvester-iso/harvester-release.yaml/").await, 404);
    assert_eq!(status("/harvester-iso/round").await, 404);
    assert_eq!(status("/etc/passwd").await, 404);
    assert_eq!(server.get("/healthz", "").await.text(), "ok\n");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn links_that_leave_the_image_are_refused() {
    let (_sources, server) = sample().await;
    for path in ["passwd", "shadow"] {
        let reply = server.get(&format!("/harvester-iso/{path}"), "").await;
        assert_eq!(reply.status, 403);
        assert!(!reply.text().contains("root"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_download_can_be_resumed() {
    let (_sources, server) = sample().await;
    let whole = server.get(ROOTFS, "").await;
    let size = whole.body.len();
    for (range, begin, end) in [
        ("bytes=0-0", 0, 1),
        ("bytes=5-70000", 5, 70_001),
        ("bytes=799990-", 799_990, size),
        ("bytes=-10", size - 10, size),
        ("bytes=0-9999999", 0, size),
    ] {
        let part = server.get(ROOTFS, &format!("Range: {range}\r\n")).await;
        assert_eq!(part.status, 206, "{range}");
        assert!(part.body == whole.body[begin..end], "{range}");
        let content_range = format!("bytes {begin}-{}/{size}", end - 1);
        assert_eq!(part.header("content-range"), Some(content_range.as_str()));
    }
    let beyond = server.get(ROOTFS, "Range: bytes=800000-\r\n").await;
    assert_eq!(beyond.status, 416);
    assert_eq!(beyond.header("content-range"), Some("bytes */800000"));
    let several = server.get(ROOTFS, "Range: bytes=0-1,4-5\r\n").await;
    assert_eq!((several.status, several.body.len()), (200, size));
    let head = ask(server.address, "HEAD", ROOTFS, "Range: bytes=0-9\r\n").await;
    assert_eq!((head.status, head.header("content-length")), (206, Some("10")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_of_another_version_is_never_given() {
    let (_sources, server) = sample().await;
    let whole = server.get(ROOTFS, "").await;
    let (tag, date) = (whole.header("etag").unwrap(), whole.header("last-modified").unwrap());
    let status = async |if_range: &str| {
        let headers = format!("Range: bytes=0-9\r\nIf-Range: {if_range}\r\n");
        server.get(ROOTFS, &headers).await.status
    };
    assert_eq!(status(tag).await, 206);
    assert_eq!(status(date).await, 206);
    assert_eq!(status("\"another\"").await, 200);
    assert_eq!(status(&format!("W/{tag}")).await, 200);
    assert_eq!(status("Thu, 01 Jan 1970 00:00:00 GMT").await, 200);
    let other = server.get("/harvester-iso/harvester-release.yaml", "").await;
    assert_ne!(other.header("etag").unwrap(), tag);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_image_has_the_same_tags_on_every_replica_and_another_image_others() {
    let sources = Sources::sample();
    let iso = sources.iso();
    let copy = iso.with_extension("copy");
    std::fs::copy(&iso, &copy).unwrap();
    let (one, two) = (
        Running::start(&iso, Limits::REPOSITORY).await,
        Running::start(&copy, Limits::REPOSITORY).await,
    );
    let tag = async |server: &Running| server.get(ROOTFS, "").await.header("etag").unwrap().to_owned();
    assert_eq!(tag(&one).await, tag(&two).await);
    sources.add("rootfs.squashfs", &[1; 800_001]);
    let three = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    assert_ne!(tag(&one).await, tag(&three).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_client_has_is_not_sent_again() {
    let (_sources, server) = sample().await;
    let whole = server.get(ROOTFS, "").await;
    let (tag, date) = (whole.header("etag").unwrap(), whole.header("last-modified").unwrap());
    for condition in [
        format!("If-None-Match: \"x\", W/{tag}\r\n"),
        format!("If-Modified-Since: {date}\r\n"),
    ] {
        let reply = server.get(ROOTFS, &condition).await;
        assert_eq!((reply.status, reply.body.len()), (304, 0));
        assert_eq!(reply.header("etag"), Some(tag));
    }
    let changed = format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {date}\r\n");
    assert_eq!(server.get(ROOTFS, &changed).await.status, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_have_a_page_whose_names_lead_on() {
    let (_sources, server) = sample().await;
    let moved = server.get("/harvester-iso/odd", "").await;
    assert_eq!(
        (moved.status, moved.header("location")),
        (301, Some("/harvester-iso/odd/"))
    );
    assert_eq!(server.get("/", "").await.header("location"), Some("/harvester-iso/"));
    let top = server.get("/harvester-iso/", "").await;
    assert_eq!(top.header("content-type"), Some("text/html; charset=utf-8"));
    let page = top.text();
    assert!(page.contains("<title>Index of /harvester-iso/</title>"), "{page}");
    assert!(page.contains("<a href=\"bundle/\">bundle/</a>"), "{page}");
    assert!(page.contains("<a href=\"harvester-release.yaml\">"), "{page}");
    assert!(
        !page.contains("passwd"),
        "what leads out of the image is not shown: {page}"
    );
    let odd = server.get("/harvester-iso/odd/", "").await;
    let link = odd
        .text()
        .split("<a href=\"")
        .last()
        .unwrap()
        .split('"')
        .next()
        .unwrap();
    assert_eq!(
        server.get(&format!("/harvester-iso/odd/{link}"), "").await.text(),
        "odd"
    );
    assert!(!odd.text().contains("<c>"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_connection_serves_many_requests_also_when_they_come_at_once() {
    let (_sources, server) = sample().await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n");
    for _ in 0..3 {
        let text = request("/harvester-iso/harvester-release.yaml");
        stream.write_all(text.as_bytes()).await.unwrap();
        assert_eq!(one(&mut stream).await.text(), SAMPLE_RELEASE);
    }
    let last = "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let both = [request("/harvester-iso/none").as_str(), last].concat();
    stream.write_all(both.as_bytes()).await.unwrap();
    let all = String::from_utf8(support::to_end(&mut stream).await).unwrap();
    assert!(all.starts_with("HTTP/1.1 404 ") && all.ends_with("ok\n"), "{all}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_can_be_written() {
    let (_sources, server) = sample().await;
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "get"] {
        let reply = ask(server.address, method, ROOTFS, "").await;
        assert_eq!(
            (reply.status, reply.header("allow")),
            (405, Some("GET, HEAD")),
            "{method}"
        );
    }
}
