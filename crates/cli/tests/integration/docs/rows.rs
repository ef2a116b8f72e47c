//! Rows of what the real systems do that are answered by a page alone: the page keeps saying it, in both languages.

use std::fs;

use crate::docs::page::{self, Page};

/// A phase and the file that decides about it.
const PHASES: [(&str, &str); 8] = [
    ("Initialize", "initialize.rs"),
    ("ISODownload", "iso_download.rs"),
    ("RepoCreate", "repo_create.rs"),
    ("MetadataPopulate", "metadata_populate.rs"),
    ("ImagePreload", "image_preload.rs"),
    ("ClusterUpgrade", "cluster_upgrade.rs"),
    ("NodeUpgrade", "node_upgrade/evaluate.rs"),
    ("ImageCleanup", "image_cleanup.rs"),
];

#[test]
fn r39_the_diagram_of_phases_shows_those_that_can_fail_and_no_others() {
    for page in ["docs/phases.md", "docs/zh/phases.md"] {
        let text = Page::read(page).text;
        for (phase, file) in PHASES {
            let code = fs::read_to_string(page::root().join("crates/plan/src/phase").join(file)).unwrap();
            // Phases of Plans fail where a Plan is waited for, and one fails where the digests of its release are compared.
            let elsewhere = ["suc_plan::complete", "release_digests::record"];
            let fails = code.contains("Outcome::Fail") || elsewhere.iter().any(|rule| code.contains(rule));
            let is_shown = text.contains(&format!("{phase} --> Failed"));
            assert_eq!(is_shown, fails, "{page}: {phase} --> Failed");
        }
        let never = text.lines().find(|line| line.starts_with("RepoCreate "));
        let never = never.unwrap_or_else(|| panic!("{page} does not say what RepoCreate does instead of failing"));
        assert!(never.contains("MetadataPopulate"), "{never}");
    }
}

#[test]
fn r59_the_known_issues_of_an_upgrade_to_v1_9_are_listed_with_what_to_do() {
    for page in ["docs/troubleshooting.md", "docs/zh/troubleshooting.md"] {
        let text = Page::read(page).text;
        let row = |what: &str| {
            let mut rows = text.lines().filter(|line| line.starts_with("| "));
            let found = rows.find(|row| row.contains(what));
            found
                .unwrap_or_else(|| panic!("{page} has no row about {what}"))
                .to_owned()
        };
        // VMs with more than one CPU thread.
        assert!(row("harvester#11615").contains("restoreVM"), "{page}");
        // Charts that RKE2 installs while API servers are mixed.
        for job in ["helm-install-rke2-canal", "helm-install-rke2-coredns"] {
            assert!(row("harvester#11543").contains(job), "{page}: {job}");
        }
        // Both guards of Multus.
        for guard in ["failurePolicy: abort", "rke2-multus.yaml.skip"] {
            assert!(row("harvester#10359").contains(guard), "{page}: {guard}");
        }
    }
}
