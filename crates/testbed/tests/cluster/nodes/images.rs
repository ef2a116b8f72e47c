//! Images that run: one static busybox, under the names of a release's images. Each image has a configuration of its own, so
//! that removing one of them removes no other.

use std::path::Path;

use serde_json::{Value, json};
use testbed::archive::hex;

/// Waits for a signal to end. As the first process of a container it needs a handler for it.
const SLEEP: &str = "trap 'exit 0' TERM INT; while :; do sleep 3600 & wait $!; done";

/// A layer with a shell.
pub(crate) fn busybox_layer() -> Vec<u8> {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"]
        .into_iter()
        .find(|path| Path::new(path).exists())
        .expect("busybox-static, which hack/prepare installs");
    let mut layer = tar::Builder::new(Vec::new());
    add(&mut layer, "bin/busybox", 0o755, &std::fs::read(busybox).unwrap());
    for name in ["sh", "sleep"] {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        layer
            .append_link(&mut header, format!("bin/{name}"), "busybox")
            .unwrap();
    }
    layer.into_inner().unwrap()
}

/// A layer with these files: path, mode, content.
pub(crate) fn layer_of(files: &[(&str, u32, Vec<u8>)]) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    for (path, mode, content) in files {
        add(&mut layer, path, *mode, content);
    }
    layer.into_inner().unwrap()
}

/// An archive as `docker save` writes it, with these images of one layer.
pub(crate) fn archive(images: &[String], layer: &[u8]) -> Vec<u8> {
    let digest = hex(layer);
    let layer_name = format!("{digest}/layer.tar");
    let mut archive = tar::Builder::new(Vec::new());
    add(&mut archive, &layer_name, 0o644, layer);
    let mut manifest = Vec::new();
    for image in images {
        let config = json!({
            "architecture": "amd64", "os": "linux",
            "config": {"Cmd": ["/bin/sh", "-c", SLEEP], "Env": ["PATH=/bin"], "Labels": {"name": image}},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{digest}")]},
        })
        .to_string();
        let config_name = format!("{}.json", hex(config.as_bytes()));
        add(&mut archive, &config_name, 0o644, config.as_bytes());
        manifest.push(json!({"Config": config_name, "RepoTags": [image], "Layers": [layer_name]}));
    }
    let manifest = Value::from(manifest).to_string();
    add(&mut archive, "manifest.json", 0o644, manifest.as_bytes());
    archive.into_inner().unwrap()
}

fn add(tar: &mut tar::Builder<Vec<u8>>, name: &str, mode: u32, content: &[u8]) {
    let mut header = tar::Header::new_ustar();
    header.set_size(content.len() as u64);
    header.set_mode(mode);
    tar.append_data(&mut header, name, content).unwrap();
}
