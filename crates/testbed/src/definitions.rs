//! The real definitions of the foreign kinds, for tests that must not believe ours.
//!
//! They are not part of this repository. Tests read them from the folder that `UPGRADE_TOOLKIT_CRDS` names; a kind that this
//! folder lacks is read from the folder above, which has the release before. Without the variable, or if the folder lacks a
//! kind, tests use our definitions, and one line says so.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::{Once, OnceLock},
};

use api::foreign::{self, ForeignKind};
use serde_json::{Value, json};

const VARIABLE: &str = "UPGRADE_TOOLKIT_CRDS";
/// The folder of the release after the one in the folder above it.
const NEWER: &str = "v1.9";
/// Kinds of which no real definition is at hand: the world does not write them, and checks read them as they are.
const WITHOUT_A_REAL_ONE: [&str; 1] = ["ippools.whereabouts.cni.cncf.io"];

/// The real definitions of all foreign kinds, read once.
#[must_use]
pub fn real_definitions() -> Option<&'static [Value]> {
    static READ: OnceLock<Option<Vec<Value>>> = OnceLock::new();
    static SAID: Once = Once::new();
    let folder = folder();
    let read = READ.get_or_init(|| read(folder.as_deref()?));
    if read.is_none() {
        // Straight to stderr: what a passing test prints is captured.
        SAID.call_once(|| {
            let why = match &folder {
                Some(folder) => format!("{} does not contain all real ones", folder.display()),
                None => format!("{VARIABLE} names no folder with the real ones"),
            };
            drop(writeln!(
                std::io::stderr(),
                "foreign kinds are served by our own definitions: {why}"
            ));
        });
    }
    read.as_deref()
}

/// The same of every release that is there, with its folder.
#[must_use]
pub fn real_definitions_by_release() -> Vec<(String, Vec<Value>)> {
    let Some(folder) = folder() else {
        return Vec::new();
    };
    let folders = [folder.clone(), folder.join(NEWER)];
    let there = folders.into_iter().filter(|folder| folder.is_dir());
    there
        .filter_map(|folder| Some((folder.display().to_string(), read(&folder)?)))
        .collect()
}

/// The folder that the variable names. Make exports the variable empty where there is no folder.
fn folder() -> Option<PathBuf> {
    let named = std::env::var_os(VARIABLE)?;
    (!named.is_empty()).then(|| named.into())
}

fn read(folder: &Path) -> Option<Vec<Value>> {
    let real = |kind: &&ForeignKind| definition(folder, kind).or_else(|| ours(kind));
    foreign::ALL.iter().map(real).collect()
}

/// Our definition of a kind that is only read, and whose real definition no folder has.
fn ours(kind: &ForeignKind) -> Option<Value> {
    let name = format!("{}.{}", kind.plural, kind.group);
    let is_it = |definition: &Value| definition["metadata"]["name"] == name.as_str();
    WITHOUT_A_REAL_ONE.contains(&name.as_str()).then_some(())?;
    api::crd::foreign().into_iter().find(is_it)
}

fn definition(folder: &Path, kind: &ForeignKind) -> Option<Value> {
    let file = format!("{}.{}.yaml", kind.plural, kind.group);
    let newer = std::fs::read_to_string(folder.join(&file));
    let text = newer.or_else(|_| std::fs::read_to_string(folder.join("..").join(&file)));
    let mut definition: Value = serde_saphyr::from_str(&text.ok()?).ok()?;
    // No conversion webhook runs in tests. Objects are stored and shown in the newest version.
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
