//! The help of the whole program: commands for people first, those that an upgrade runs by itself under a heading of their own.

use std::fmt::Write as _;

use clap::CommandFactory;

use super::Cli;

/// Commands that Deployments and Jobs of an upgrade run. People rarely call them.
const OF_JOBS: [&str; 8] = [
    "manager",
    "repo",
    "node",
    "cluster-upgrade",
    "vm-live-migrate-detector",
    "restore-vm",
    "version-guard",
    "manifests",
];

/// The program with its help.
pub(super) fn command() -> clap::Command {
    let command = Cli::command();
    let commands = listed(&command);
    let template =
        format!("{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{commands}\n{{options}}{{after-help}}");
    command.help_template(template)
}

fn listed(command: &clap::Command) -> String {
    let styles = command.get_styles();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let shown = || command.get_subcommands().filter(|one| !one.is_hide_set());
    let width = shown().map(|one| one.get_name().len()).max().unwrap_or_default();
    let mut text = String::new();
    for (heading, of_jobs) in [("Commands", false), ("Commands that an upgrade runs by itself", true)] {
        let _ = writeln!(text, "{header}{heading}:{header:#}");
        for one in shown().filter(|one| OF_JOBS.contains(&one.get_name()) == of_jobs) {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            let name = one.get_name();
            let space = width - name.len();
            let _ = writeln!(text, "  {literal}{name}{literal:#}{:space$}  {about}", "");
        }
        text.push('\n');
    }
    let _ = write!(text, "{header}Options:{header:#}");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn u22_commands_for_people_come_first_and_every_command_is_there_once() {
        let help = command().render_help().to_string();
        let (people, jobs) = help.split_once("Commands that an upgrade runs by itself:").unwrap();
        for (name, is_for_people) in [
            ("upgrade", true),
            ("rehearse", true),
            ("wait", true),
            ("node", false),
            ("manager", false),
        ] {
            let line = format!("\n  {name} ");
            assert_eq!(people.contains(&line), is_for_people, "{name}: {help}");
            assert_eq!(jobs.contains(&line), !is_for_people, "{name}: {help}");
        }
        for name in OF_JOBS {
            assert!(Cli::command().find_subcommand(name).is_some(), "{name}");
        }
    }
}
