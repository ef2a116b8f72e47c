//! What the image gets from elsewhere: a release gets what belongs to it, or is not built.

use std::collections::BTreeMap;

use release::manifest::sha256;

use crate::packaging::image::script;

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn sum(bytes: &[u8]) -> String {
    sha256(bytes).as_str().to_owned()
}

/// What a release gets from elsewhere: files in a folder, and what is said about them.
struct Elsewhere {
    folder: tempfile::TempDir,
    said: BTreeMap<&'static str, String>,
}

impl Elsewhere {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        std::fs::create_dir_all(path("addons/v1.7")).unwrap();
        let sources = format!("v1.8.2 {COMMIT}\nv1.7 {COMMIT}\nv1.8 {COMMIT}\n");
        std::fs::write(path("addons/sources"), sources).unwrap();
        std::fs::write(path("addons/harvester-seeder.yaml"), "kind: Addon\n").unwrap();
        std::fs::write(path("addons/v1.7/harvester-seeder.yaml"), "kind: Addon\n").unwrap();
        let cdi = "---\nkind: CustomResourceDefinition\nmetadata:\n  name: cdis\n---\nkind: Deployment\nspec:\n        env:\n        \
            - name: OPERATOR_VERSION\n          value: v1.64.0\n";
        std::fs::write(path("cdi-operator.yaml"), cdi).unwrap();
        std::fs::write(path("elemental"), "elemental").unwrap();
        let said = [
            ("RELEASE", "true".to_owned()),
            ("HARVESTER_VERSION", "v1.8.2".to_owned()),
            ("VERSION", "v0.2.0".to_owned()),
            ("GIT_COMMIT", COMMIT.to_owned()),
            ("GIT_TREE_STATE", "clean".to_owned()),
            ("ELEMENTAL", path("elemental")),
            ("ELEMENTAL_SHA256", sum(b"elemental")),
            (
                "BASE_OS_IMAGE",
                format!("registry.example/os/v1.8/main/baseos@sha256:{}", sum(b"")),
            ),
            ("ADDONS", path("addons")),
            ("ADDONS_COMMIT", COMMIT.to_owned()),
            ("ADDONS_COMMITS_BEFORE", format!("v1.7={COMMIT},v1.8={COMMIT}")),
            ("CDI", path("cdi-operator.yaml")),
            ("CDI_SHA256", sum(cdi.as_bytes())),
        ];
        let said = BTreeMap::from(said);
        Self { folder, said }
    }

    fn lay_out(&self, changes: &[(&'static str, &str)]) -> (i32, String) {
        let mut said = self.said.clone();
        said.extend(changes.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let variables: Vec<(&str, &str)> = said.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let to = self.folder.path().join("root");
        drop(std::fs::remove_dir_all(&to));
        script("elsewhere", &[to.to_str().unwrap()], &variables)
    }

    fn share(&self, name: &str) -> Option<String> {
        std::fs::read_to_string(self.folder.path().join("root/usr/local/share").join(name)).ok()
    }
}

#[test]
fn r34_a_release_gets_from_elsewhere_what_belongs_to_it_or_is_not_built() {
    let all = Elsewhere::new();
    assert_eq!(all.lay_out(&[]), (0, String::new()));
    assert_eq!(all.share("harvester-version").unwrap(), "v1.8.2\n");
    let definitions = all.share("extra_manifests/cdi/cdi.yaml").unwrap();
    assert_eq!(
        definitions,
        "---\nkind: CustomResourceDefinition\nmetadata:\n  name: cdis\n"
    );
    assert!(all.share("addons/v1.7/harvester-seeder.yaml").is_some() && all.share("stand-ins").is_none());
    let elemental = all.folder.path().join("root/usr/local/bin/elemental");
    assert_eq!(std::fs::read(elemental).unwrap(), b"elemental");

    // Each that is missing is named; all of them at once.
    let needed = ["HARVESTER_VERSION", "ELEMENTAL", "ELEMENTAL_SHA256", "ADDONS", "CDI"];
    let (code, said) = all.lay_out(&needed.map(|name| (name, "")));
    assert!(
        code == 1 && said.contains(&format!("must be given: {} (", needed.join(" "))),
        "{said}"
    );
    let other = "f".repeat(64);
    let other_commit = "f".repeat(40);
    for (change, expected) in [
        (("HARVESTER_VERSION", "v1.9.0-rc6"), "has the base system v1.9"),
        (("HARVESTER_VERSION", "v1.7.0"), "no line for Harvester v1.7.0"),
        (("CDI_VERSION", "v1.62.0"), "has CDI v1.64.0, not v1.62.0"),
        (("ADDONS_BRANCH", "v1.8.1"), "has the addons v1.8.2, not v1.8.1"),
        (
            ("BASE_OS_IMAGE", "registry.example/os/v1.8/main/baseos:v1.8"),
            "BASE_OS_IMAGE(NAME@sha256:DIGEST)",
        ),
        (("ELEMENTAL_SHA256", &other), "(ELEMENTAL_SHA256)"),
        (("CDI_SHA256", &other), "(CDI_SHA256)"),
        (("CDI_SHA256", ""), "CDI_SHA256(SHA-256)"),
        (("ADDONS_COMMIT", &other_commit), "(ADDONS_COMMIT)"),
        (
            ("ADDONS_COMMITS_BEFORE", &format!("v1.7={COMMIT},v1.8={other_commit}")),
            "(ADDONS_COMMITS_BEFORE)",
        ),
        (("GIT_TREE_STATE", "dirty"), "GIT_TREE_STATE(clean)"),
    ] {
        let (code, said) = all.lay_out(&[change]);
        assert!(code == 1 && said.contains(expected), "{change:?}: {said}");
    }
    // Files say themselves what they are of, in a build for development too.
    let of_v1_8_0 = [
        ("RELEASE", "false"),
        ("HARVESTER_VERSION", "v1.8.0"),
        ("ADDONS_COMMIT", ""),
    ];
    let (code, said) = all.lay_out(&[&of_v1_8_0[..], &[("ADDONS", ""), ("CDI_SHA256", "")]].concat());
    assert!(
        code == 1 && said.contains("has CDI v1.62.0, and") && said.contains("is of v1.64.0 (CDI)"),
        "{said}"
    );
    let (code, said) = all.lay_out(&[&of_v1_8_0[..], &[("CDI", "")]].concat());
    assert!(code == 1 && said.contains("are those of v1.8.2 (ADDONS)"), "{said}");
    std::fs::remove_file(all.folder.path().join("addons/sources")).unwrap();
    let (code, said) = all.lay_out(&[]);
    assert!(
        code == 1 && said.contains("package/addons writes the file sources"),
        "{said}"
    );
    let (code, _) = all.lay_out(&[("RELEASE", "false")]);
    assert_eq!(
        (code, all.share("stand-ins").unwrap().as_str()),
        (0, "addons: of a release that nothing tells\n")
    );
}
