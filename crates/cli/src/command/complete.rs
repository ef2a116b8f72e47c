//! `__complete`: what a shell may put in the place of the final word. kubectl and the scripts of `completion` call it; it answers
//! as programs do that kubectl knows: a candidate per line, then `:4`, or `:0` where files are meant. It changes nothing, and where
//! a cluster does not answer soon, it has no names to offer.

use std::{
    io::{self, Write},
    process::ExitCode,
    time::Duration,
};

use api::{UpgradePlan, foreign::harvester};
use clap::{Arg, ArgAction, ValueHint};
use k8s_openapi::api::core::v1::Node;
use kube::{Api, Client, Resource, ResourceExt, api::ListParams};
use serde::de::DeserializeOwned;

use super::cluster_args::{LiveArgs, block_on};

/// A user who presses a key waits no longer.
const PATIENCE: Duration = Duration::from_secs(2);

/// The words of a command line.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true, disable_version_flag = true)]
pub(super) struct Args {
    /// All words but the name of the program; the last is the one to complete
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// What stands at the place of the word.
#[derive(Debug, PartialEq, Eq)]
enum Candidates {
    These(Vec<String>),
    Files,
    /// Names of objects of the cluster.
    Names(Named),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Named {
    Plan,
    Node,
    Version,
    Context,
}

pub(super) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut root = super::help::command();
    root.build();
    let (found, cluster) = candidates(&root, &args.words);
    let (names, directive) = match found {
        Candidates::These(names) => (names, 4),
        Candidates::Files => (Vec::new(), 0),
        Candidates::Names(named) => (names(named, &cluster), 4),
    };
    let prefix = args.words.last().map(String::as_str).unwrap_or_default();
    let mut out = io::stdout().lock();
    for name in names.iter().filter(|name| name.starts_with(prefix)) {
        writeln!(out, "{name}")?;
    }
    writeln!(out, ":{directive}")?;
    Ok(ExitCode::SUCCESS)
}

/// What fits the final word, and the cluster that the words before it name.
fn candidates(root: &clap::Command, words: &[String]) -> (Candidates, LiveArgs) {
    let mut command = root;
    let mut cluster = LiveArgs::default();
    let mut expected: Option<&Arg> = None;
    let mut positionals = 0;
    let (last, before) = words
        .split_last()
        .map_or(("", &[][..]), |(last, before)| (last.as_str(), before));
    for word in before {
        // Bash takes the sign for a word.
        if word == "=" {
            continue;
        }
        if let Some(arg) = expected.take() {
            note(&mut cluster, arg, word);
        } else if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long
                .split_once('=')
                .map_or((long, None), |(name, value)| (name, Some(value)));
            let arg = command.get_arguments().find(|arg| arg.get_long() == Some(name));
            match (arg.filter(|arg| takes_value(arg)), value) {
                (Some(arg), Some(value)) => note(&mut cluster, arg, value),
                (arg, _) => expected = arg,
            }
        } else if let Some(short) = word.strip_prefix('-') {
            let letter = short.chars().next();
            let mut arguments = command.get_arguments();
            let arg = arguments.find(|arg| letter.is_some() && arg.get_short() == letter);
            expected = arg.filter(|arg| takes_value(arg) && short.len() == 1);
        } else if let Some(below) = command.find_subcommand(word) {
            (command, positionals) = (below, 0);
        } else {
            positionals += 1;
        }
    }
    let found = if let Some(arg) = expected {
        values(command, arg)
    } else if last.starts_with('-') {
        let flags = command.get_arguments().filter(|arg| !arg.is_hide_set());
        Candidates::These(flags.filter_map(|arg| Some(format!("--{}", arg.get_long()?))).collect())
    } else if command.has_subcommands() && positionals == 0 {
        let below = command.get_subcommands().filter(|one| !one.is_hide_set());
        Candidates::These(below.map(|one| one.get_name().to_owned()).collect())
    } else {
        let is_many = |arg: &&Arg| matches!(arg.get_action(), ArgAction::Append);
        let at = command.get_positionals().nth(positionals);
        match at.or_else(|| command.get_positionals().last().filter(is_many)) {
            Some(arg) => values(command, arg),
            None => Candidates::These(Vec::new()),
        }
    };
    (found, cluster)
}

fn takes_value(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::Set | ArgAction::Append)
}

fn note(cluster: &mut LiveArgs, arg: &Arg, value: &str) {
    match arg.get_id().as_str() {
        "kubeconfig" => cluster.kubeconfig = Some(value.into()),
        "context" => cluster.context = Some(value.to_owned()),
        _ => {}
    }
}

/// The values of an argument. Names of objects only for commands that look at a cluster.
fn values(command: &clap::Command, arg: &Arg) -> Candidates {
    let possible = arg.get_possible_values();
    if !possible.is_empty() {
        let shown = possible.iter().filter(|value| !value.is_hide_set());
        return Candidates::These(shown.map(|value| value.get_name().to_owned()).collect());
    }
    let name = arg
        .get_value_names()
        .and_then(|names| names.first())
        .map(|name| name.as_str());
    // The nodes of a rehearsal are none of the live cluster.
    let is_of_cluster =
        command.get_name() != "rehearse" && command.get_arguments().any(|arg| arg.get_id() == "kubeconfig");
    match (arg.get_id().as_str(), name) {
        ("context", _) => Candidates::Names(Named::Context),
        ("trouble", _) => {
            let names = crate::rehearsal::trouble::rows().map(|row| row.name.to_owned());
            Candidates::These(names.chain(["list".to_owned()]).collect())
        }
        (_, Some("PLAN")) if is_of_cluster => Candidates::Names(Named::Plan),
        (_, Some("NODE")) if is_of_cluster => Candidates::Names(Named::Node),
        ("version" | "target_version", Some("VERSION")) if is_of_cluster => Candidates::Names(Named::Version),
        _ if matches!(
            arg.get_value_hint(),
            ValueHint::FilePath | ValueHint::AnyPath | ValueHint::DirPath
        ) =>
        {
            Candidates::Files
        }
        _ => Candidates::These(Vec::new()),
    }
}

/// Names in the cluster. None when it does not answer soon: there is nothing to say to a user who presses a key.
fn names(named: Named, cluster: &LiveArgs) -> Vec<String> {
    if named == Named::Context {
        return cluster.contexts();
    }
    let asked = async {
        let client = cluster.client().await?;
        match named {
            Named::Plan => list::<UpgradePlan>(Api::all(client)).await,
            Named::Node => list::<Node>(Api::all(client)).await,
            Named::Version => list::<harvester::Version>(of_harvester(client)).await,
            Named::Context => Ok(Vec::new()),
        }
    };
    // A timer needs the runtime that `block_on` starts.
    let asked = block_on(async { tokio::time::timeout(PATIENCE, asked).await });
    asked.ok().and_then(Result::ok).and_then(Result::ok).unwrap_or_default()
}

fn of_harvester(client: Client) -> Api<harvester::Version> {
    Api::namespaced(client, api::names::HARVESTER_NAMESPACE)
}

async fn list<K>(api: Api<K>) -> anyhow::Result<Vec<String>>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let objects = api.list(&ListParams::default()).await?;
    Ok(objects.iter().map(ResourceExt::name_any).collect())
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    fn found(line: &str) -> (Candidates, LiveArgs) {
        let mut root = super::super::help::command();
        root.build();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        candidates(&root, &words)
    }

    #[rstest]
    #[case("pause ", Candidates::Names(Named::Node))]
    #[case("pause node-1 no", Candidates::Names(Named::Node))]
    #[case("resume --plan ", Candidates::Names(Named::Plan))]
    #[case("wait h", Candidates::Names(Named::Plan))]
    #[case("retry a ", Candidates::These(vec![]))]
    #[case("upgrade --version ", Candidates::Names(Named::Version))]
    #[case("wait --context ", Candidates::Names(Named::Context))]
    #[case("snapshot -o ", Candidates::Files)]
    #[case("rehearse --pause ", Candidates::These(vec![]))]
    fn the_place_of_a_word_says_what_fits(#[case] line: &str, #[case] expected: Candidates) {
        assert_eq!(found(line).0, expected);
    }

    #[test]
    fn commands_flags_and_values_are_offered_and_the_cluster_is_the_one_of_the_line() {
        let Candidates::These(commands) = found("").0 else {
            panic!()
        };
        assert!(commands.contains(&"rehearse".to_owned()) && !commands.contains(&"__complete".to_owned()));
        let Candidates::These(flags) = found("rehearse --wit").0 else {
            panic!()
        };
        assert!(flags.contains(&"--witness".to_owned()));
        assert_eq!(
            found("rehearse -o ").0,
            Candidates::These(vec!["text".into(), "json".into(), "yaml".into(), "markdown".into()])
        );
        let Candidates::These(troubles) = found("rehearse --trouble dr").0 else {
            panic!()
        };
        assert!(troubles.contains(&"drain-blocked".to_owned()) && troubles.contains(&"list".to_owned()));
        let (_, cluster) = found("pause --context west --kubeconfig=/tmp/k no");
        assert_eq!(cluster.context.as_deref(), Some("west"));
        assert_eq!(cluster.kubeconfig.unwrap().to_str(), Some("/tmp/k"));
    }
}
