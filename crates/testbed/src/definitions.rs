//! The real definitions of the foreign kinds, for tests that must not believe ours.
//!
//! They are not part of this repository. Tests find them in `../shared/crds` next to it, or in the folder that
//! `UPGRADE_TOOLKIT_CRDS` names; a kind that this folder lacks is looked for in the folder above, which has the release
//! before. Where there are none, one line says so.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Once, OnceLock},
};

use api::foreign::{self, ForeignKind};
use serde_json::{Value, json};

const VARIABLE: &str = "UPGRADE_TOOLKIT_CRDS";
const BESIDE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/crds");
/// The folder of the release after the one in the folder above it.
const NEWER: &str = "v1.9";

/// The real definitions of all foreign kinds, read once.
#[must_use]
pub fn real_definitions() -> Option<&'static [Value]> {
    static READ: OnceLock<Option<Vec<Value>>> = OnceLock::new();
    static SAID: Once = Once::new();
    let folder = folder();
    let read = READ.get_or_init(|| read(&folder));
    if read.is_none() {
        // Straight to stderr: what a passing test prints is captured.
        SAID.call_once(|| {
            let folder = folder.display();
            drop(writeln!(
                std::io::stderr(),
                "foreign kinds are served by our own definitions: {folder} has not the real ones ({VARIABLE} names another folder)"
            ));
        });
    }
    read.as_deref()
}

/// The same of every release that is there, with its folder.
#[must_use]
pub fn real_definitions_by_release() -> Vec<(String, Vec<Value>)> {
    let folder = folder();
    let folders = [folder.clone(), folder.join(NEWER)];
    let there = folders.into_iter().filter(|folder| folder.is_dir());
    there
        .filter_map(|folder| Some((folder.display().to_string(), read(&folder)?)))
        .collect()
}

fn folder() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| BESIDE.into(), PathBuf::from)
}

fn read(folder: &Path) -> Option<Vec<Value>> {
    foreign::ALL.iter().map(|kind| definition(folder, kind)).collect()
}

fn definition(folder: &Path, kind: &ForeignKind) -> Option<Value> {
    let file = format!("{}.{}.yaml", kind.plural, kind.group);
    let beside = std::fs::read_to_string(folder.join(&file));
    let text = beside.or_else(|_| std::fs::read_to_string(folder.join("..").join(&file)));
    let mut definition: Value = serde_saphyr::from_str(&text.ok()?).ok()?;
    // Nobody serves webhooks here. Objects are stored and shown in the newest version.
    definition["spec"]["conversion"] = json!({"strategy": "None"});
    definition.as_object_mut()?.remove("status");
    without_descriptions(&mut definition);
    Some(definition)
}

/// Most of a definition is documentation.
fn without_descriptions(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|key, child| key != "description" || !child.is_string());
            map.values_mut().for_each(without_descriptions);
        }
        Value::Array(list) => list.iter_mut().for_each(without_descriptions),
        _ => {}
    }
}
