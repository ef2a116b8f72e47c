//! YAML as tests look at it: documents found by kind and name.

use serde_json::Value;

/// The documents of a YAML stream.
pub(crate) struct Documents(pub(crate) Vec<Value>);

impl Documents {
    pub(crate) fn read(text: &str) -> Self {
        let documents = format!("\n{text}");
        let documents = documents.split("\n---").filter(|part| {
            let mut lines = part.lines().map(str::trim);
            lines.any(|line| !line.is_empty() && !line.starts_with('#'))
        });
        let read = |part: &str| serde_saphyr::from_str(part).unwrap_or_else(|error| panic!("{error}\n{part}"));
        Self(documents.map(read).collect())
    }

    /// `Kind name` of all, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.iter().map(name).collect();
        names.sort();
        names
    }

    /// The one document of a kind and name.
    pub(crate) fn one(&self, wanted: &str) -> &Value {
        let mut found = self.0.iter().filter(|document| name(document) == wanted);
        match (found.next(), found.next()) {
            (Some(one), None) => one,
            _ => panic!("not one {wanted} among {:?}", self.names()),
        }
    }

    /// The container of the manager.
    pub(crate) fn manager(&self) -> &Value {
        let deployment = self.0.iter().find(|document| document["kind"] == "Deployment").unwrap();
        &deployment["spec"]["template"]["spec"]["containers"][0]
    }

    /// A variable of the manager's environment; of two with a name the later counts, as in Kubernetes.
    pub(crate) fn variable(&self, wanted: &str) -> Option<&str> {
        let environment = self.manager()["env"].as_array().unwrap();
        let variable = environment.iter().rfind(|variable| variable["name"] == wanted)?;
        variable["value"].as_str()
    }

    /// The arguments of the manager.
    pub(crate) fn arguments(&self) -> Vec<&str> {
        let arguments = self.manager()["args"].as_array().unwrap();
        arguments.iter().map(|argument| argument.as_str().unwrap()).collect()
    }

    /// Makes sure that objects are there as the code has them. Labels, and what only a packager adds, do not count.
    pub(crate) fn assert_has(&self, objects: &[Value]) {
        for object in objects {
            // Roles of one name may be in several namespaces.
            let is_it = |document: &&Value| {
                name(document) == name(object) && document["metadata"]["namespace"] == object["metadata"]["namespace"]
            };
            let found: Vec<Value> = self.0.iter().filter(is_it).map(bare).collect();
            assert_eq!(found, [bare(object)]);
        }
    }

    /// Makes sure that whatever names an object of this installation names one that is there.
    pub(crate) fn assert_whole(&self) {
        let names = self.names();
        let demand = |wanted: String| assert!(names.contains(&wanted), "there is no {wanted} among {names:?}");
        for document in &self.0 {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            match document["kind"].as_str().unwrap() {
                "RoleBinding" | "ClusterRoleBinding" => {
                    let role = &document["roleRef"];
                    // Kubernetes has that one itself.
                    if role["name"] != "cluster-admin" {
                        demand(format!("{} {}", text(&role["kind"]), text(&role["name"])));
                    }
                    for subject in document["subjects"].as_array().unwrap() {
                        demand(format!("ServiceAccount {}", text(&subject["name"])));
                    }
                }
                "MutatingWebhookConfiguration" | "ValidatingWebhookConfiguration" => {
                    let service = &document["webhooks"][0]["clientConfig"]["service"];
                    demand(format!("Service {}", text(&service["name"])));
                    let prefix = self.variable("WEBHOOK_NAME_PREFIX").unwrap();
                    let ours = text(&document["metadata"]["name"]);
                    assert!(
                        ["mutating", "validating"]
                            .map(|w| format!("{prefix}{w}-webhook-configuration"))
                            .contains(&ours)
                    );
                    assert_eq!(text(&service["name"]), format!("{prefix}webhook-service"));
                }
                "Deployment" => {
                    let template = &document["spec"]["template"];
                    demand(format!(
                        "ServiceAccount {}",
                        text(&template["spec"]["serviceAccountName"])
                    ));
                    assert_selects(&document["spec"]["selector"]["matchLabels"], template);
                }
                "Service" => {
                    let deployments = self.0.iter().filter(|document| document["kind"] == "Deployment");
                    deployments.for_each(|d| assert_selects(&document["spec"]["selector"], &d["spec"]["template"]));
                    assert!(document["metadata"]["name"].as_str().unwrap().len() <= 63);
                }
                _ => {}
            }
        }
    }
}

fn assert_selects(selector: &Value, template: &Value) {
    for (label, value) in selector.as_object().unwrap() {
        assert_eq!(&template["metadata"]["labels"][label], value, "{label}");
    }
}

fn name(document: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    format!("{} {}", text(&document["kind"]), text(&document["metadata"]["name"]))
}

fn bare(object: &Value) -> Value {
    let mut object = object.clone();
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.remove("labels");
    metadata.remove("annotations");
    object
}
