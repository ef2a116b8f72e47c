//! Archives whose blobs are not what their names or images say.

use serde_json::json;

use super::*;

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn tar(entries: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in entries {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content.as_slice()).unwrap();
    }
    tar.into_inner().unwrap()
}

fn read(tar: &[u8]) -> io::Result<Vec<u8>> {
    let mut seen = Vec::new();
    // In pieces that fit no block.
    let mut blobs = Blobs::new(tar);
    let mut part = [0; 777];
    loop {
        match blobs.read(&mut part)? {
            0 => return Ok(seen),
            count => seen.extend_from_slice(&part[..count]),
        }
    }
}

fn refusal(entries: &[(String, Vec<u8>)]) -> String {
    read(&tar(entries)).unwrap_err().to_string()
}

/// An image as `docker save` writes it: configuration, layer, list.
fn saved(layer_name: &str) -> [(String, Vec<u8>); 3] {
    let layer: Vec<u8> = (0..5000_u32).flat_map(u32::to_le_bytes).collect();
    let config = json!({"rootfs": {"diff_ids": [format!("sha256:{}", hex(&layer))]}}).to_string();
    let config_name = format!("{}.json", hex(config.as_bytes()));
    let list = json!([{"Config": config_name, "RepoTags": ["a:b"], "Layers": [layer_name]}]).to_string();
    [
        (config_name, config.into()),
        (layer_name.to_owned(), layer),
        ("manifest.json".to_owned(), list.into()),
    ]
}

#[test]
fn a_whole_archive_passes_as_it_is() {
    // The second name needs an entry of its own.
    for name in ["0123/layer.tar".to_owned(), format!("{}/layer.tar", "x".repeat(200))] {
        let archive = tar(&saved(&name));
        assert!(read(&archive).unwrap() == archive);
    }
}

#[test]
fn s07_a_configuration_or_blob_with_another_digest_than_its_name_is_refused_by_name() {
    let mut entries = saved("0123/layer.tar");
    entries[0].1.push(b' ');
    let (name, said) = (entries[0].0.clone(), refusal(&entries));
    assert!(said.contains(&format!("blob {name} is refused")), "{said}");
    let blob = format!("blobs/sha256/{}", hex(b"one"));
    assert!(read(&tar(&[(blob.clone(), b"one".to_vec())])).is_ok());
    let said = refusal(&[(blob.clone(), b"two".to_vec())]);
    assert!(
        said.contains(&format!("blob {blob} is refused: its SHA-256 is {}", hex(b"two"))),
        "{said}"
    );
    let long = format!("./{blob}");
    assert!(refusal(&[(long, b"two".to_vec())]).contains("is refused"));
}

#[test]
fn s07_a_layer_that_is_not_its_images_own_is_refused_by_name_before_the_end_of_the_archive() {
    let mut entries = saved("0123/layer.tar");
    entries[1].1[100] ^= 1;
    let said = refusal(&entries);
    assert!(said.contains("layer 0123/layer.tar is refused"), "{said}");
    let entries = saved("0123/layer.tar");
    let said = refusal(&[entries[0].clone(), entries[2].clone()]);
    assert!(said.contains("layer 0123/layer.tar is missing"), "{said}");
    let mut entries = saved("0123/layer.tar");
    let other = String::from_utf8(entries[2].1.clone()).unwrap();
    entries[2].1 = other.replace(&entries[0].0, "config.json").into();
    entries[0].0 = "config.json".to_owned();
    assert!(refusal(&entries).contains("named by its SHA-256"));
}

#[test]
fn a_layer_that_is_a_link_to_another_is_found_there() {
    let [config, layer, list] = saved("abcd/layer.tar");
    let mut tar = tar::Builder::new(Vec::new());
    let mut add = |name: &str, content: &[u8]| {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, content).unwrap();
    };
    add(&config.0, &config.1);
    add("0123/layer.tar", &layer.1);
    add("manifest.json", &list.1);
    let mut link = Header::new_gnu();
    link.set_entry_type(EntryType::Symlink);
    link.set_size(0);
    tar.append_link(&mut link, "abcd/layer.tar", "../0123/layer.tar")
        .unwrap();
    assert!(read(&tar.into_inner().unwrap()).is_ok());
}

#[test]
fn archives_of_tools_without_a_docker_engine_pass_and_are_verified_too() {
    let layer: Vec<u8> = (0..9000_u32).flat_map(u32::to_be_bytes).collect();
    // Compressed: its SHA-256 is another than the one in the configuration.
    let config = json!({"rootfs": {"diff_ids": [format!("sha256:{}", hex(b"unpacked"))]}}).to_string();
    let config_name = format!("sha256:{}", hex(config.as_bytes()));
    let layer_name = format!("{}.tar.gz", hex(&layer));
    let list = json!([{"Config": config_name, "RepoTags": ["a:b"], "Layers": [layer_name]}]).to_string();
    let mut entries = [
        (config_name.clone(), config.into_bytes()),
        (layer_name.clone(), layer),
        ("manifest.json".to_owned(), list.into()),
    ];
    let archive = tar(&entries);
    assert!(read(&archive).unwrap() == archive);
    entries[1].1[0] ^= 1;
    assert!(refusal(&entries).contains(&format!("blob {layer_name} is refused")));
    entries[1].1[0] ^= 1;
    entries[0].1.push(b' ');
    assert!(refusal(&entries).contains(&format!("blob {config_name} is refused")));
}
