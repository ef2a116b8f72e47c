//! `release inspect` and `repo` as processes.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Output, Stdio},
};

use release::testing::Sources;
use serde_json::Value;

fn toolkit() -> Command {
    Command::new(assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
}

fn inspect(iso: &Path, options: &[&str]) -> Output {
    toolkit()
        .args(["release", "inspect"])
        .arg(iso)
        .args(options)
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

#[test]
fn an_iso_is_shown_to_people() {
    let sources = Sources::sample();
    let shown = inspect(&sources.iso(), &[]);
    assert!(shown.status.success());
    let shown = text(&shown.stdout);
    for line in [
        "Harvester v1.8.0, ",
        "  Upgrades from     v1.7.0",
        "  Kubernetes        v1.35.2+rke2r1",
        "  rootfs.squashfs   781.3 KiB (xz)\n",
        "  SHA-512           ",
        "Not checked\n  the files in /rootfs.squashfs: only its superblock is read\n",
        "  common    781.3 KiB     2 images  harvester-images-v1.8.0.tar.zst",
        "  v1.7.1                  4 images",
    ] {
        assert!(shown.contains(line), "{line:?} is not in\n{shown}");
    }
}

#[test]
fn an_iso_is_shown_to_programs() {
    let sources = Sources::sample();
    let iso = sources.iso();
    let json: Value = serde_json::from_slice(&inspect(&iso, &["-o", "json"]).stdout).unwrap();
    assert_eq!(json["release"]["rancherDependencies"]["fleet"]["app"], "0.14.0");
    assert_eq!(json["archives"][1]["group"], "common");
    assert_eq!(json["problems"], serde_json::json!([]));
    let yaml = inspect(&iso, &["-o", "yaml"]).stdout;
    let yaml: Value = serde_saphyr::from_str(text(&yaml)).unwrap();
    assert_eq!(yaml, json);
}

#[test]
fn u12_random_bytes_as_system_and_archive_fail_and_a_quick_look_reports_what_it_did_not_check() {
    let sources = Sources::sample();
    let noise: Vec<u8> = (0..100_000_u32)
        .flat_map(|at| at.wrapping_mul(2_654_435_761).to_le_bytes())
        .collect();
    sources.add("rootfs.squashfs", &noise);
    sources.add("bundle/harvester/images/harvester-images-v1.8.0.tar.zst", &noise);
    for options in [&[][..], &["--quick"]] {
        let failed = inspect(&sources.iso(), options);
        assert_eq!(failed.status.code(), Some(1), "{options:?}");
        let shown = text(&failed.stdout);
        assert!(
            shown.contains("it is no squashfs: it begins with") && shown.contains("no archive of images"),
            "{shown}"
        );
    }
    let quick = inspect(&Sources::sample().iso(), &["--quick"]);
    assert_eq!(quick.status.code(), Some(0));
    assert!(
        text(&quick.stdout).contains("\n  the SHA-512 of the image\n"),
        "{}",
        text(&quick.stdout)
    );
    let other = inspect(&Sources::sample().iso(), &["--checksum", &"0".repeat(128)]);
    assert_eq!(other.status.code(), Some(1));
    assert!(text(&other.stdout).contains("the file is damaged, or of another release"));
}

#[test]
fn a_truncated_a_foreign_and_an_incomplete_iso_fail_with_a_reason() {
    let sources = Sources::sample();
    let iso = sources.iso();
    let cut = iso.with_extension("cut");
    let bytes = fs::read(&iso).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 500_000]).unwrap();
    let foreign = iso.with_extension("txt");
    fs::write(&foreign, "hello ".repeat(20_000)).unwrap();
    for (file, why) in [
        (&cut, "the image is truncated"),
        (&foreign, "not an ISO 9660 image"),
        (&iso.with_extension("none"), "failed to open"),
    ] {
        let failed = inspect(file, &[]);
        assert_eq!(failed.status.code(), Some(1));
        let error = text(&failed.stderr);
        assert!(
            error.starts_with("Error: failed to inspect ") && error.contains(why),
            "{error}"
        );
        assert!(error.contains(&file.display().to_string()), "{error}");
    }
    sources.remove("rootfs.squashfs");
    let incomplete = inspect(&sources.iso(), &[]);
    assert_eq!(incomplete.status.code(), Some(1));
    assert!(text(&incomplete.stdout).contains("No cluster can be upgraded with this ISO"));
}

/// Ends the process that this test started, and no other.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_repository_serves_and_ends_on_sigterm() {
    let sources = Sources::sample();
    let child = toolkit()
        .args(["repo", "--listen", "127.0.0.1:0", "--iso"])
        .arg(sources.iso())
        .env("RUST_LOG", "info")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut running = Running(child);
    let mut log = BufReader::new(running.0.stderr.take().unwrap());
    let mut line = String::new();
    log.read_line(&mut line).unwrap();
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(line["fields"]["harvester"], "v1.8.0");
    let mut stream = TcpStream::connect(line["fields"]["address"].as_str().unwrap()).unwrap();
    write!(stream, "GET /harvester-iso/harvester-release.yaml HTTP/1.0\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(
        reply.starts_with("HTTP/1.1 200 OK\r\n") && reply.contains("harvester: v1.8.0"),
        "{reply}"
    );
    let id = running.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    let exit = running.0.wait().unwrap();
    assert!(exit.success(), "{exit}");
}

#[test]
fn a_repository_without_a_release_does_not_start() {
    let sources = Sources::new();
    sources.add("other", b"");
    let failed = toolkit()
        .args(["repo", "--listen", "127.0.0.1:0", "--iso"])
        .arg(sources.iso())
        .output()
        .unwrap();
    assert_eq!(failed.status.code(), Some(1));
    let error = text(&failed.stderr);
    assert!(error.contains("not of a Harvester release"), "{error}");
}
