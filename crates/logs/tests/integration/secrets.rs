//! Secrets in lines do not reach an archive, and what is masked is documented.

use std::{io::Read as _, sync::Arc};

use crate::support::disk::SimulatedDisk;
use logs::{
    Archive, Class, Collector, Limits, Settings, Store,
    collector::{ContainerFacts, ContainerState, Observed, PodFacts, Response},
    line::SECOND,
    mask::{Masker, table::PATTERNS},
};

/// Lines with secrets. Each secret has the text `HUSH`.
const HOSTILE: &[&str] = &[
    r#"Authorization: Bearer HUSHabcdef0123456789"#,
    r#"> authorization: Basic HUSHdXNlcjpwYXNz"#,
    r#"req headers map[Accept:[*/*] Authorization:[Bearer HUSH-token-0123]]"#,
    r#"{"headers":{"Authorization":"Bearer HUSH.0123.4567"}}"#,
    r#"{"msg":"{\"authorization\": \"HUSH0123456\"}"}"#,
    r#"curl -H 'Authorization: token HUSH0123456789'"#,
    r#"Proxy-Authorization: Digest HUSH0123"#,
    r#"using bearer HUSH0123456789abcdef for the request"#,
    r#"Set-Cookie: R_SESS=HUSH-session; Path=/; HttpOnly"#,
    r#"token eyJhbGciOiJSUzI1NiIsImtpZCI6IkhVU0gifQ.HUSHeyJpc3MiOiJr.HUSHsig-na_ture"#,
    r#"joining with K10a1b2c3d4e5f60718293a4b5c6d7e8f9::server:HUSH0123456789"#,
    r#"CATTLE_TOKEN="HUSHk8q9r7""#,
    r#"token-x7k2p:hushhushhushhushhushhushhush00HUSH"#,
    r#"    client-key-data: LS0tLS1CRUdJTiBHUSHLS0t"#,
    r#"    client-certificate-data: "LS0tHUSHLS0t""#,
    r#"pulling https://admin:HUSH!pw@registry.example/v2/"#,
    r#"GET /v3/import?token=HUSH0123&x=1 200"#,
    r#"https://bucket.example/x?X-Amz-Credential=HUSH&X-Amz-Signature=HUSH01"#,
    r#"rancher:$6$salt1234$HUSHabcdefghijklmnop0123456789:19000:0:99999"#,
    r#"passwd: HUSHpw"#,
    r#"  plain_text_passwd: 'HUSH pw'"#,
    r#"hashed_passwd=HUSHxyz"#,
    r#"password: HUSH with"#,
    r#"{"password":"HUSH word","user":"admin"}"#,
    r#"{\"password\":\"HUSHword\"}"#,
    r#"DB_PASSWORD=HUSH123"#,
    r#"exec rke2 server --token HUSH0123 --tls-san a"#,
    r#"args: ["--token", "HUSH0123", "--debug"]"#,
    r#"--agent-token=HUSH0123"#,
    r#"aws_secret_access_key = HUSHwJalrXUtnFEMI"#,
    r#"AWS_ACCESS_KEY_ID: HUSH0123"#,
    r#"apiKey: "HUSH-api-key""#,
    r#"clientSecret=HUSHsecret"#,
    r#"key: "-----BEGIN EC PRIVATE KEY-----\nHUSHMHcCAQEEI\n-----END EC PRIVATE KEY-----\n""#,
    "-----BEGIN RSA PRIVATE KEY-----",
    "MIIEpAIBAAKCAQEAHUSH",
    "  HUSH0123456789+/==",
    "-----END RSA PRIVATE KEY-----",
    "tls.key: |  -----BEGIN PRIVATE KEY-----",
    "HUSHMIIEvQIBADANBg",
    "-----END PRIVATE KEY----- and the end",
];

/// Lines that stay as they are.
const HARMLESS: &[&str] = &[
    "level=info msg=\"Waiting for the token controller\"",
    "the secret harvester-system/harvester-token was created",
    "I0313 03:57:09 leader.go:12] successfully acquired lease kube-system/x",
    "GET https://10.0.0.1:6443/api/v1/nodes?limit=500 200 OK in 3 milliseconds",
    "password changed",
    "automountServiceAccountToken: false",
    "-----BEGIN CERTIFICATE-----",
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5 root@node",
];

fn pod() -> PodFacts {
    PodFacts {
        namespace: "ns".to_owned(),
        name: "pod".to_owned(),
        uid: "u".to_owned(),
        class: Class::Own,
        component: "test".to_owned(),
        node: None,
        created: 0,
        is_deleting: false,
        is_job: true,
        containers: vec![ContainerFacts {
            name: "c".to_owned(),
            instance: 0,
            state: ContainerState::Ended,
            has_previous: false,
        }],
    }
}

fn archived(lines: &[&str]) -> String {
    let disk = Arc::new(SimulatedDisk::new(1));
    let mut store = Store::open(disk, Limits::default(), 0).unwrap();
    let mut collector = Collector::new(Settings::default(), store.known());
    let observed = Observed { pods: vec![pod()] };
    let step = collector.next(SECOND, &observed, true);
    let id = step.requests[0].id;
    let text: String = lines
        .iter()
        .enumerate()
        .map(|(at, line)| format!("2026-03-13T00:00:{at:02}.5Z {line}\n"))
        .collect();
    // A secret must not slip through where a response is split.
    for part in text.as_bytes().chunks(7) {
        collector
            .accept(SECOND, id, Response::Bytes(part))
            .into_iter()
            .for_each(|append| store.append(append));
    }
    collector
        .accept(SECOND, id, Response::End)
        .into_iter()
        .for_each(|append| store.append(append));
    store.commit(SECOND).unwrap();
    let archive = Archive::new(store.view(), "2026-03-13T00:00:00Z".parse().unwrap());
    let bytes = archive.write(Vec::new()).unwrap();
    let mut zip = zip::ZipArchive::new(std::io::Cursor::new(bytes)).unwrap();
    let mut all = String::new();
    for at in 0..zip.len() {
        zip.by_index(at).unwrap().read_to_string(&mut all).unwrap();
    }
    all
}

#[test]
fn no_secret_of_hostile_lines_is_in_an_archive() {
    let mut faults = Vec::new();
    let all = archived(HOSTILE);
    faults.extend(all.lines().filter(|line| line.contains("HUSH")).map(str::to_owned));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert_eq!(
        all.lines().filter(|line| line.contains("2026-03-13T00:00:")).count(),
        HOSTILE.len() + 1,
        "{all}"
    );
}

#[test]
fn lines_without_secrets_stay_as_they_are() {
    for line in HARMLESS {
        assert_eq!(Masker::default().mask(line), *line);
    }
}

#[test]
fn a_key_without_an_end_does_not_hide_the_rest_of_the_log() {
    let mut masker = Masker::default();
    masker.mask("-----BEGIN PRIVATE KEY-----");
    let shown = (0..1000).filter(|_| masker.mask("a line") == "a line").count();
    assert!(shown >= 700, "{shown}");
}

#[test]
fn each_pattern_masks_something_and_is_documented() {
    let page = |name: &str| std::fs::read_to_string(format!("{}/../../{name}", env!("CARGO_MANIFEST_DIR"))).unwrap();
    let documented = page("docs/logs.md");
    let all = archived(HOSTILE)
        + &archived(&[
            "AKIAABCDEFGHIJKLMNOP is used",
            "bootstrap token abcdef.0123456789abcdef",
        ]);
    for pattern in PATTERNS {
        let row = format!("| `{}` | {} |", pattern.name, pattern.what);
        assert!(documented.contains(&row), "docs/logs.md has no row {row}");
        assert!(
            all.contains(&format!("[masked: {}]", pattern.name)),
            "nothing is masked by {}",
            pattern.name
        );
    }
}
