//! nginx with our configuration: accepted by the real one, and it answers as our server does.

use std::{
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use crate::support::{PATIENCE, Reply, Running, ask};
use clock::Clock;
use release::{
    nginx::{Nginx, Secure, config},
    repo::Limits,
    testing::{SAMPLE_RELEASE, Sources},
    tls::{Identity, Trust, client_config, mint},
};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::TlsConnector;

const NAME: &str = "up-repo.harvester-system.svc";

fn nginx() -> Command {
    let system = Path::new("/usr/sbin/nginx");
    Command::new(if system.exists() { system } else { Path::new("nginx") })
}

/// nginx in a folder of its own. Ends with its workers.
struct RealNginx {
    process: Child,
    address: SocketAddr,
    secure: SocketAddr,
    identity: Identity,
    _folder: tempfile::TempDir,
}

impl Drop for RealNginx {
    fn drop(&mut self) {
        let id = self.process.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &id]).status();
        let _ = self.process.wait();
    }
}

impl RealNginx {
    /// Serves a tree as if it were mounted.
    async fn start(tree: &Path) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().join("htdocs");
        let state = folder.path().join("state");
        for path in [&root, &state] {
            fs::create_dir(path).unwrap();
        }
        let copied = Command::new("cp")
            .arg("-a")
            .arg(tree)
            .arg(root.join("harvester-iso"))
            .status();
        assert!(copied.unwrap().success());
        // Started by root, nginx works as the user `nobody`.
        for path in [folder.path(), &root.join("harvester-iso")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let file = folder.path().join("nginx.conf");
        let listen = address.to_string();
        let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let secure = free.local_addr().unwrap();
        drop(free);
        let identity = mint(&[NAME.to_owned()], Clock::system().now()).unwrap();
        fs::write(folder.path().join("tls.crt"), &identity.certificate).unwrap();
        fs::write(folder.path().join("tls.key"), &identity.key).unwrap();
        let listen_secure = secure.to_string();
        let text = config(&Nginx {
            listen: &listen,
            secure: Some(Secure {
                listen: &listen_secure,
                folder: folder.path(),
            }),
            root: &root,
            state: &state,
        });
        fs::write(&file, text.unwrap()).unwrap();
        accepted(&file);
        let process = nginx()
            .args(["-e", "stderr", "-c"])
            .arg(&file)
            .stderr(Stdio::null())
            .spawn();
        let running = Self {
            process: process.expect("nginx, which hack/prepare installs"),
            address,
            secure,
            identity,
            _folder: folder,
        };
        let up = async { while TcpStream::connect(address).await.is_err() {} };
        timeout(PATIENCE, up).await.expect("nginx listens");
        running
    }
}

/// nginx's own check of a configuration.
fn accepted(file: &PathBuf) {
    let check = nginx().args(["-t", "-e", "stderr", "-c"]).arg(file).output().unwrap();
    let said = String::from_utf8_lossy(&check.stderr);
    assert!(check.status.success() && !said.contains("[warn]"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_release_is_found_where_upgrades_look_for_it() {
    let sources = Sources::sample();
    let nginx = RealNginx::start(&sources.tree()).await;
    let reply = ask(nginx.address, "GET", "/harvester-iso/harvester-release.yaml", "").await;
    assert_eq!((reply.status, reply.text()), (200, SAMPLE_RELEASE));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s07_nginx_serves_over_tls_to_those_who_trust_the_certificate_of_the_plan() {
    let sources = Sources::sample();
    let nginx = RealNginx::start(&sources.tree()).await;
    let connect = async |certificate: &str| {
        let trust = Trust {
            certificate: certificate.to_owned(),
            server_name: NAME.to_owned(),
        };
        let config = client_config(Some(&trust)).unwrap();
        let stream = TcpStream::connect(nginx.secure).await.unwrap();
        let name = ServerName::try_from(NAME).unwrap();
        TlsConnector::from(std::sync::Arc::new(config))
            .connect(name, stream)
            .await
    };
    let mut stream = connect(&nginx.identity.certificate).await.unwrap();
    let request = "GET /harvester-iso/harvester-release.yaml HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut all = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut all)).await.unwrap().unwrap();
    let reply = Reply::parse(&all).unwrap();
    assert_eq!((reply.status, reply.text()), (200, SAMPLE_RELEASE));
    let other = mint(&[NAME.to_owned()], Clock::system().now()).unwrap();
    assert!(connect(&other.certificate).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nginx_and_our_server_answer_alike() {
    let sources = Sources::sample();
    sources.link("passwd", "/etc/passwd");
    sources.add("empty", b"");
    let nginx = RealNginx::start(&sources.tree()).await;
    let ours = Running::start(&sources.iso(), Limits::REPOSITORY).await;
    let list = "/harvester-iso/bundle/harvester/images-lists-archive/current/image_list_all.txt";
    let rootfs = "/harvester-iso/rootfs.squashfs";
    let requests = [
        ("GET", "/harvester-iso/harvester-release.yaml", ""),
        ("HEAD", "/harvester-iso/harvester-release.yaml", ""),
        ("GET", "/harvester-iso/bundle//metadata.yaml", ""),
        ("GET", "/harvester-iso/./bundle/metadata.yaml?x", ""),
        ("GET", "/harvester-iso/bundle%2Fmetadata.yaml", ""),
        ("GET", list, ""),
        ("GET", rootfs, ""),
        ("GET", rootfs, "Range: bytes=0-99\r\n"),
        ("GET", rootfs, "Range: bytes=100-\r\n"),
        ("GET", rootfs, "Range: bytes=-100\r\n"),
        ("GET", rootfs, "Range: bytes=800000-\r\n"),
        ("GET", rootfs, "Range: bytes=0-99\r\nIf-Range: \"other\"\r\n"),
        ("HEAD", rootfs, "Range: bytes=0-99\r\n"),
        ("GET", rootfs, "If-None-Match: *\r\n"),
        ("GET", "/harvester-iso/empty", ""),
        ("GET", "/harvester-iso/none", ""),
        ("GET", "/harvester-iso/passwd", ""),
        ("GET", "/harvester-iso/harvester-release.yaml/", ""),
        ("GET", "/harvester-iso/a%00b", ""),
        ("GET", "/harvester-iso/%zz", ""),
        ("GET", "/../etc/passwd", ""),
        ("GET", "/harvester-iso", ""),
        ("GET", "/harvester-iso/bundle", ""),
        ("GET", "/", ""),
        ("GET", "/other", ""),
        ("GET", "/healthz", ""),
        ("POST", rootfs, ""),
        ("DELETE", rootfs, ""),
    ];
    for (method, target, headers) in requests {
        let (a, b) = (
            ask(nginx.address, method, target, headers).await,
            ask(ours.address, method, target, headers).await,
        );
        let what = format!("{method} {target} {headers}");
        assert_eq!(a.status, b.status, "{what}");
        for header in ["location", "content-range"] {
            assert_eq!(a.header(header), b.header(header), "{header} of {what}");
        }
        if matches!(a.status, 200 | 206) {
            assert!(a.body == b.body, "{what}");
            assert_eq!(a.header("content-length"), b.header("content-length"), "{what}");
        }
    }
    // Pages of folders differ in looks, not in where they lead.
    let links = |text: &str| {
        let links = text
            .split("<a href=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap().to_owned());
        let mut links: Vec<_> = links.filter(|link| link != "passwd").collect();
        links.sort();
        links
    };
    let target = "/harvester-iso/";
    let (a, b) = (
        ask(nginx.address, "GET", target, "").await,
        ask(ours.address, "GET", target, "").await,
    );
    assert_eq!(links(a.text()), links(b.text()));
}
