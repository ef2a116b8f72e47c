//! Objects of a YAML or JSON file. A long list that a program wrote is read object by object, on all processors: a document of
//! tens of megabytes at once takes long and much memory. Decides nothing about the objects.

use std::thread;

use serde_json::Value;

/// Objects that are read at once, by all processors together.
const AT_ONCE: usize = 512;
/// Below this, a second processor is not worth a thread.
const SHORT: usize = 64 * 1024;

/// Why a file has no objects that we can read.
#[derive(Debug, thiserror::Error)]
pub enum ManifestError {
    /// It is not YAML.
    #[error("it is not YAML: {0}")]
    Yaml(Box<serde_saphyr::Error>),
    /// It is not JSON.
    #[error("it is not JSON: {0}")]
    Json(#[from] serde_json::Error),
}

impl From<serde_saphyr::Error> for ManifestError {
    fn from(error: serde_saphyr::Error) -> Self {
        Self::Yaml(Box::new(error))
    }
}

/// Calls `each` with every object of a file: those of lists, and those that stand by themselves.
///
/// # Errors
/// The text is neither YAML nor JSON. `each` was then called with the objects before.
pub(crate) fn objects(text: &str, mut each: impl FnMut(Value)) -> Result<(), ManifestError> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim_start().starts_with(['{', '[']) {
        let documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        for document in documents {
            items(document?, &mut each);
        }
        return Ok(());
    }
    let Some(chunks) = chunks(text) else {
        let documents: Vec<Value> = serde_saphyr::from_multiple_with_options(text, options(true))?;
        documents.into_iter().for_each(|document| items(document, &mut each));
        return Ok(());
    };
    for batch in chunks.chunks(AT_ONCE) {
        for objects in parsed(batch) {
            objects?.into_iter().for_each(&mut each);
        }
    }
    Ok(())
}

/// The objects of a list, or the object itself.
fn items(document: Value, each: &mut impl FnMut(Value)) {
    match document {
        Value::Array(objects) => objects.into_iter().for_each(each),
        Value::Object(mut object) if object.get("items").is_some_and(Value::is_array) => {
            // Items of a typed list (`kind: PodList`) do not repeat what they are.
            let kind = object
                .get("kind")
                .and_then(Value::as_str)
                .and_then(|kind| kind.strip_suffix("List"));
            let kind = kind.filter(|kind| !kind.is_empty()).map(str::to_owned);
            let version = object.get("apiVersion").cloned();
            let Some(Value::Array(objects)) = object.remove("items") else {
                return;
            };
            for mut one in objects {
                if let (Some(kind), Some(version), None) = (&kind, &version, one.get("kind"))
                    && let Some(fields) = one.as_object_mut()
                {
                    fields.insert("kind".to_owned(), kind.clone().into());
                    fields.insert("apiVersion".to_owned(), version.clone());
                }
                each(one);
            }
        }
        Value::Object(object) => each(Value::Object(object)),
        _ => {}
    }
}

fn options(is_long: bool) -> serde_saphyr::Options {
    let mut options = serde_saphyr::options! {
        // As YAML 1.2 has it, and as programs write it: `yes` is a text.
        strict_booleans: true,
        with_snippet: false,
    };
    if is_long && let Some(budget) = &mut options.budget {
        budget.max_events = 40_000_000;
        budget.max_nodes = 20_000_000;
    }
    options
}

fn parsed(batch: &[&str]) -> Vec<Result<Vec<Value>, ManifestError>> {
    let read = |chunk: &&str| -> Result<Vec<Value>, ManifestError> {
        let text = without_managed_fields(chunk);
        Ok(serde_saphyr::from_str_with_options(&text, options(false))?)
    };
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let bytes: usize = batch.iter().map(|chunk| chunk.len()).sum();
    if processors == 1 || bytes < SHORT {
        return batch.iter().map(read).collect();
    }
    let share = batch.len().div_ceil(processors);
    thread::scope(|scope| {
        let workers: Vec<_> = batch
            .chunks(share)
            .map(|part| (part, scope.spawn(move || part.iter().map(read).collect::<Vec<_>>())))
            .collect();
        let done = workers.into_iter();
        // A thread that is gone has left its part.
        done.flat_map(|(part, worker)| worker.join().unwrap_or_else(|_| part.iter().map(read).collect()))
            .collect()
    })
}

/// The items of a list as kubectl and support bundles write it: `items:` and its items at the first column. Nothing when it is
/// written in any other way.
fn chunks(text: &str) -> Option<Vec<&str>> {
    let mut chunks = Vec::new();
    let mut begin = None;
    let (mut is_list, mut in_items) = (false, false);
    let mut position = 0;
    for line in text.split_inclusive('\n') {
        let at = position;
        position += line.len();
        if line.starts_with([' ', '\n', '\r']) {
            if in_items && begin.is_none() {
                return None;
            }
            continue;
        }
        if let Some(begin) = begin.take() {
            chunks.push(&text[begin..at]);
        }
        let line = line.trim_end();
        match line {
            _ if line.starts_with("- ") && in_items => begin = Some(at),
            "items:" if !in_items => in_items = true,
            "kind: List" => is_list = true,
            "apiVersion: v1" | "metadata:" | "items: []" => {}
            _ => return None,
        }
        in_items = in_items && (line == "items:" || line.starts_with("- "));
    }
    if let Some(begin) = begin {
        chunks.push(&text[begin..]);
    }
    is_list.then_some(chunks)
}

/// An item of a list without who wrote which of its fields: often half of it, and never looked at.
fn without_managed_fields(chunk: &str) -> String {
    let mut kept = String::with_capacity(chunk.len());
    let (mut in_metadata, mut skipping) = (false, false);
    for line in chunk.split_inclusive('\n') {
        let indent = line.len() - line.trim_start_matches(' ').len();
        if skipping && (indent > 4 || line[indent..].starts_with("- ") || line.trim().is_empty()) {
            continue;
        }
        skipping = false;
        if indent <= 2 && !line.trim().is_empty() {
            in_metadata = line.trim_end() == "  metadata:";
        }
        if in_metadata && line.trim_end() == "    managedFields:" {
            skipping = true;
            continue;
        }
        kept.push_str(line);
    }
    kept
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn names(text: &str) -> Vec<String> {
        let mut names = Vec::new();
        objects(text, |object| {
            names.push(format!(
                "{} {}",
                object["kind"].as_str().unwrap_or("?"),
                object["metadata"]["name"].as_str().unwrap_or("?")
            ))
        })
        .unwrap();
        names
    }

    const LIST: &str = "apiVersion: v1\nitems:\n- kind: Pod\n  metadata:\n    managedFields:\n    - manager: x\n      f:\n        a: 1\n\n    \
                        name: a\n  value: |-\n    metadata:\n    managedFields:\n      stays\n- kind: Pod\n  metadata:\n    name: b\nkind: List\n\
                        metadata:\n  resourceVersion: \"\"\n";

    #[rstest]
    #[case::a_list(LIST, &["Pod a", "Pod b"])]
    #[case::an_empty_list("apiVersion: v1\nitems: []\nkind: List\n", &[])]
    #[case::one("kind: Node\nmetadata: {name: n}\n", &["Node n"])]
    #[case::several("kind: Node\nmetadata: {name: n}\n---\n# a comment\nkind: Pod\nmetadata: {name: p}\n", &["Node n", "Pod p"])]
    #[case::indented_items("kind: List\nitems:\n  - kind: Pod\n    metadata: {name: a}\n", &["Pod a"])]
    #[case::a_typed_list("kind: PodList\napiVersion: v1\nitems:\n- metadata: {name: a}\n", &["Pod a"])]
    #[case::json(r#"{"kind": "List", "items": [{"kind": "Pod", "metadata": {"name": "a"}}]}"#, &["Pod a"])]
    #[case::json_lines("{\"kind\": \"Pod\", \"metadata\": {\"name\": \"a\"}}\n{\"kind\": \"Node\"}", &["Pod a", "Node ?"])]
    #[case::nothing("", &[])]
    fn objects_are_found_however_they_are_written(#[case] text: &str, #[case] expected: &[&str]) {
        assert_eq!(names(text), expected);
    }

    #[test]
    fn who_wrote_a_field_is_dropped_and_what_only_looks_so_is_not() {
        let mut found = Vec::new();
        objects(LIST, |object| found.push(object)).unwrap();
        assert!(found[0]["metadata"].get("managedFields").is_none());
        assert_eq!(found[0]["value"], "metadata:\nmanagedFields:\n  stays");
    }

    #[test]
    fn many_objects_keep_their_order() {
        let mut text = "apiVersion: v1\nitems:\n".to_owned();
        for number in 0..3000 {
            text.push_str(&format!("- kind: Pod\n  metadata:\n    labels:\n      some-label-that-is-long: value-that-is-long\n    name: p{number}\n"));
        }
        text.push_str("kind: List\n");
        let expected: Vec<String> = (0..3000).map(|number| format!("Pod p{number}")).collect();
        assert_eq!(names(&text), expected);
    }

    #[test]
    fn what_is_neither_yaml_nor_json_is_an_error() {
        assert!(objects("a: b: c", |_| ()).is_err());
        assert!(objects("{", |_| ()).is_err());
        assert!(objects("apiVersion: v1\nitems:\n- a: \"\nkind: List\n", |_| ()).is_err());
    }
}
