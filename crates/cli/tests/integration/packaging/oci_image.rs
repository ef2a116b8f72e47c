//! The image that `make image` builds without a registry: it is the Dockerfile's, it runs as its pods say, and two builds
//! are one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
    sync::OnceLock,
};

use serde_json::Value;

use crate::packaging::{
    hack,
    image::script,
    oci_archive::{Image, images},
    root, skipped,
};

const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";
const FACTS: [(&str, &str); 6] = [
    ("VERSION", "v0.2.0-test"),
    ("GIT_COMMIT", COMMIT),
    ("GIT_TREE_STATE", "clean"),
    ("SOURCE_DATE_EPOCH", "1700000000"),
    ("RELEASE", "false"),
    ("IMG", "rancher/harvester-upgrade-toolkit:test"),
];

/// A command with the binary that cargo has at hand and nothing of what the caller's environment says about the image.
fn command(program: PathBuf) -> Command {
    let mut command = Command::new(program);
    let names = [
        "ELEMENTAL",
        "ADDONS",
        "CDI",
        "PROFILE",
        "WITH_NGINX",
        "REFRESH",
        "HARVESTER_VERSION",
        "CDI_VERSION",
        "CDI_SHA256",
        "ADDONS_BRANCH",
        "BASE_OS_IMAGE",
    ];
    for name in names {
        command.env_remove(name);
    }
    command
        .env("BINARY", assert_cmd::cargo::cargo_bin("upgrade-toolkit"))
        .envs(FACTS);
    command
}

/// Runs it. Where this machine cannot, returns why.
fn run(command: &mut Command) -> Result<String, String> {
    let output = command.output().unwrap();
    let said = [output.stdout.clone(), output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    if output.status.code() == Some(3) {
        return Err(said);
    }
    assert!(output.status.success(), "{said}");
    Ok(String::from_utf8(output.stdout).unwrap())
}

/// The archive, built once for all tests, or why there is none. It stays until the next run: nothing ends what is static.
fn archive() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        // Several checkouts may share the folder.
        let checkout = env!("CARGO_MANIFEST_DIR").replace('/', "-");
        let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("image{checkout}.tar"));
        run(command(root().join("package/image")).arg(&place)).map(|_| place)
    });
    built.as_deref().map_err(String::as_str)
}

/// Instructions of the last stage of the Dockerfile: name and the rest, lines joined.
fn last_stage() -> Vec<(String, String)> {
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let text: Vec<&str> = recipe.lines().filter(|line| !line.starts_with('#')).collect();
    let joined = text.join("\n").replace("\\\n", " ");
    let stage = joined.rsplit("\nFROM ").next().unwrap();
    let lines = stage.lines().skip(1).filter_map(|line| line.split_once(' '));
    lines
        .map(|(name, rest)| (name.to_owned(), rest.split_whitespace().collect::<Vec<_>>().join(" ")))
        .collect()
}

fn outputs(stage: &[(String, String)], name: &str) -> Vec<String> {
    let of_it = stage.iter().filter(|(other, _)| other == name);
    of_it.map(|(_, rest)| rest.clone()).collect()
}

/// The image of the archive, with all of its layers as one.
fn built() -> Option<Image> {
    match archive() {
        Ok(path) => Some(images(path).remove(0)),
        Err(why) => {
            skipped("the test of the image without a registry is", why);
            None
        }
    }
}

#[test]
fn the_image_starts_as_the_dockerfile_says() {
    let Some(image) = built() else { return };
    let stage = last_stage();
    let words = |name: &str| -> Value { serde_json::from_str(&outputs(&stage, name)[0]).unwrap() };
    assert_eq!(image.config["Entrypoint"], words("ENTRYPOINT"));
    assert_eq!(image.config["Cmd"], words("CMD"));
    assert_eq!(image.config["User"], outputs(&stage, "USER")[0].as_str());
    // The Dockerfile sets nothing beyond what BCI does.
    assert_eq!(outputs(&stage, "ENV"), Vec::<String>::new());
    let path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    assert_eq!(image.config["Env"], serde_json::json!([path]));
    let labels = outputs(&stage, "LABEL")[0].clone();
    let labels = labels
        .replace("${VERSION}", FACTS[0].1)
        .replace("${GIT_COMMIT}", COMMIT);
    let labels: BTreeMap<&str, &str> = labels
        .split(' ')
        .filter_map(|pair| pair.split_once('='))
        .map(|(name, value)| (name, value.trim_matches('"')))
        .collect();
    assert!(labels.len() >= 4);
    assert_eq!(image.config["Labels"], serde_json::json!(labels));
    let known = ["Entrypoint", "Cmd", "User", "Env", "Labels"];
    for name in image.config.as_object().unwrap().keys() {
        assert!(known.contains(&name.as_str()), "{name} is not the Dockerfile's");
    }
    assert_eq!(
        image.names,
        BTreeSet::from(["docker.io/rancher/harvester-upgrade-toolkit:test".to_owned()])
    );
}

#[test]
fn the_image_has_the_files_of_the_dockerfile_and_no_others_of_ours() {
    let Some(image) = built() else { return };
    let [_, ours] = &image.layers[..] else {
        panic!("it has {} layers", image.layers.len())
    };
    let layout = tempfile::tempdir().unwrap();
    let binary = assert_cmd::cargo::cargo_bin("upgrade-toolkit");
    let place = layout.path().to_str().unwrap();
    assert_eq!(script("layout", &[binary.to_str().unwrap(), place], &[]).0, 0);
    let mut expected: BTreeSet<PathBuf> = BTreeSet::new();
    let bin = layout.path().join("usr/local/bin");
    for entry in std::fs::read_dir(&bin).unwrap() {
        let name = entry.unwrap().file_name();
        let at = Path::new("usr/local/bin").join(&name);
        let link = std::fs::read_link(bin.join(&name)).ok();
        assert_eq!(ours[&at].link, link, "{}", at.display());
        assert!(link.is_some() || ours[&at].mode == 0o755);
        expected.insert(at);
    }
    // What is copied from other stages. A build for development has stand-ins in the folders, no elemental, and says so.
    let copied = outputs(&last_stage(), "COPY");
    let to: BTreeSet<&str> = copied.iter().filter_map(|line| line.split(' ').next_back()).collect();
    let known = [
        "/",
        "/usr/local/bin/elemental",
        "/usr/local/share/addons/",
        "/usr/local/share/extra_manifests/cdi/",
        "/usr/local/share/harvester-version",
    ];
    assert_eq!(to, BTreeSet::from(known));
    for name in [
        "addons/stand-in.yaml",
        "extra_manifests/cdi/stand-in.yaml",
        "harvester-version",
        "stand-ins",
    ] {
        expected.insert(Path::new("usr/local/share").join(name));
    }
    let stand_ins = &ours[Path::new("usr/local/share/stand-ins")].text;
    for what in ["elemental: none", "addons: a stand-in", "cdi: a stand-in"] {
        assert!(stand_ins.contains(what), "{stand_ins}");
    }
    assert_eq!(ours[Path::new("usr/local/share/harvester-version")].text, "v1.8.2\n");
    // Accounts are added to the base's.
    let installing = outputs(&last_stage(), "RUN").remove(0);
    for file in ["passwd", "group"] {
        let account = installing.split(&format!("' >>/etc/{file}")).next().unwrap();
        let account = account.rsplit('\'').next().unwrap();
        let text = &ours[&Path::new("etc").join(file)].text;
        assert!(
            text.starts_with("root:") && text.ends_with(&format!("\n{account}\n")),
            "{text}"
        );
        expected.insert(Path::new("etc").join(file));
    }
    let files = ours.iter().filter(|(_, one)| one.kind != tar::EntryType::Directory);
    assert_eq!(files.map(|(path, _)| path.clone()).collect::<BTreeSet<_>>(), expected);
    for (path, one) in image.layers.iter().flatten() {
        assert_eq!(
            (one.owner, one.mode & 0o6000 == 0 || !one.kind.is_file()),
            ((0, 0), true),
            "{}",
            path.display()
        );
    }
    assert!(ours.values().all(|one| one.time == 1_700_000_000));
}

#[test]
fn r19_the_image_has_the_programs_and_packages_that_the_dockerfile_installs() {
    let recipe = outputs(&last_stage(), "RUN").remove(0);
    let listed = |after: &str| {
        recipe
            .split(after)
            .nth(1)
            .unwrap()
            .split('"')
            .next()
            .unwrap()
            .to_owned()
    };
    let packages = listed("packages=\"") + &listed("packages=\"${packages}");
    let table = std::fs::read_to_string(root().join("package/debian")).unwrap();
    let table: BTreeMap<&str, Vec<&str>> = table
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .map(|(name, packages)| (name, packages.split_whitespace().collect()))
        .collect();
    let names: BTreeSet<&str> = packages.split_whitespace().collect();
    let known: BTreeSet<&str> = table
        .keys()
        .copied()
        .filter(|name| !["base", "without"].contains(name))
        .collect();
    assert_eq!(names, known);

    let Some(image) = built() else { return };
    let base = &image.layers[0];
    for package in table
        .iter()
        .filter(|(name, _)| **name != "without")
        .flat_map(|(_, names)| names)
    {
        let record = base.get(&Path::new("var/lib/dpkg/status.d").join(package));
        let record = record.unwrap_or_else(|| panic!("there is no {package}"));
        assert!(record.text.contains("\nVersion: "), "{}", record.text);
    }
    let programs = std::fs::read_to_string(root().join("package/programs")).unwrap();
    for program in programs.lines().filter_map(|line| line.split(' ').next()) {
        if program.is_empty() || program.starts_with('#') {
            continue;
        }
        let is_there = ["usr/bin", "usr/sbin"]
            .iter()
            .any(|folder| base.contains_key(&Path::new(folder).join(program)));
        assert!(is_there, "there is no {program}");
    }
}

#[test]
fn an_image_is_not_built_from_a_dockerfile_that_says_more_than_is_understood() {
    let recipe = std::fs::read_to_string(root().join("Dockerfile")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("Dockerfile");
    for (text, word) in [
        (format!("{recipe}EXPOSE 9443\n"), "EXPOSE 9443"),
        (
            recipe.replace("COPY --from=cdi /cdi/", "COPY --from=cdi /all/"),
            "copies: --from=cdi /all/",
        ),
        (
            recipe.replace("COPY --from=builder /rootfs/ /\n", ""),
            "no longer has: --from=builder",
        ),
        (
            recipe.replace(" e2fsprogs rsync\"", " e2fsprogs rsync tea\""),
            "no line for tea",
        ),
    ] {
        std::fs::write(&path, &text).unwrap();
        let output = command(root().join("package/image"))
            .arg(folder.path().join("image.tar"))
            .env("RECIPE", &path)
            .output()
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if output.status.code() != Some(3) {
            assert!(output.status.code() == Some(1) && said.contains(word), "{said}");
        }
        assert!(!folder.path().join("image.tar").exists());
    }
}

#[test]
fn two_builds_of_one_commit_are_one_image() {
    match run(&mut command(hack("image-check"))) {
        Ok(said) => assert!(said.contains("two builds have one digest: sha256:"), "{said}"),
        Err(why) => skipped("the test that two builds are one is", &why),
    }
}

#[test]
fn the_toolkit_runs_in_its_image_as_an_unprivileged_user() {
    let ran = archive()
        .map_err(str::to_owned)
        .and_then(|archive| run(Command::new(hack("image-test")).arg(archive)));
    match ran {
        Ok(said) => assert!(said.contains("ok: upgrade-toolkit rehearse"), "{said}"),
        Err(why) => skipped("the test of containers of the image is", &why),
    }
}
