//! The boot loader's environment: kernel arguments that Harvester adds. They are read and written by the node's own
//! `grub2-editenv`; what they should be is pure.

use program::error::Result;

use super::{
    HostRoot, oem,
    tools::{Call, HostTools, must},
};

const EDITOR: &str = "grub2-editenv";
const ENVIRONMENT: &str = "/oem/grubenv";
/// The boot loader looks for this file for half an hour on some machines when it is not there.
const CUSTOM: &str = "/oem/grubcustom";
const VARIABLE: &str = "third_party_kernel_args";
const NETWORK: &str = "/sys/class/net";

/// Makes sure that the files of the boot loader exist.
///
/// # Errors
/// When one cannot be made.
pub async fn create_environment(root: &HostRoot, tools: &dyn HostTools) -> Result<()> {
    if !root.exists(ENVIRONMENT)? {
        must(tools, Call::host(EDITOR, &[ENVIRONMENT, "create"])).await?;
    }
    if !root.exists(CUSTOM)? {
        root.write(CUSTOM, b"", 0o644)?;
    }
    Ok(())
}

/// Turns multipath off where no storage network is used, and pins the names of network cards, which the next release
/// might name otherwise.
///
/// # Errors
/// When the arguments cannot be read or written.
pub async fn set_kernel_arguments(root: &HostRoot, tools: &dyn HostTools) -> Result<()> {
    let listed = must(tools, Call::host(EDITOR, &[ENVIRONMENT, "list"])).await?;
    let before = variable(&listed);
    let mut wanted = before.to_owned();
    match oem::uses_external_storage(root)? {
        Some(false) => wanted = without_multipath(&wanted),
        Some(true) => {}
        None => tracing::warn!("nothing says how this node was installed; multipath is left as it is"),
    }
    wanted = with_pinned_cards(&wanted, &cards(root)?);
    if wanted != before {
        must(
            tools,
            Call::host(EDITOR, &[ENVIRONMENT, "set", &format!("{VARIABLE}={wanted}")]),
        )
        .await?;
    }
    Ok(())
}

/// The kernel arguments in what the editor lists.
fn variable(listed: &str) -> &str {
    let mut lines = listed.lines();
    let value = lines.find_map(|line| line.strip_prefix(VARIABLE)?.strip_prefix('='));
    value.unwrap_or_default()
}

/// A network card: its name and its address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Card {
    name: String,
    address: String,
}

/// The network cards with names that the system gave them. The address of one in a bond is its own, not the bond's.
fn cards(root: &HostRoot) -> Result<Vec<Card>> {
    let mut cards = Vec::new();
    for name in root
        .names_in(NETWORK)?
        .into_iter()
        .filter(|name| name.starts_with("en"))
    {
        let Some(address) = root.read_text(&format!("{NETWORK}/{name}/address"))? else {
            continue;
        };
        let own = root.read_text(&format!("{NETWORK}/{name}/bonding_slave/perm_hwaddr"))?;
        let address = own.unwrap_or(address).trim().to_owned();
        if !address.is_empty() {
            cards.push(Card { name, address });
        }
    }
    Ok(cards)
}

fn without_multipath(arguments: &str) -> String {
    if arguments.contains("multipath") {
        return arguments.to_owned();
    }
    format!("{arguments} multipath=off").trim().to_owned()
}

fn with_pinned_cards(arguments: &str, cards: &[Card]) -> String {
    let mut arguments = arguments.to_owned();
    for card in cards {
        let pinned = arguments.split_whitespace().any(|argument| {
            let pin = argument.strip_prefix("ifname=").and_then(|pin| pin.split_once(':'));
            pin.is_some_and(|(_, address)| address.eq_ignore_ascii_case(&card.address))
        });
        if !pinned {
            arguments = format!("{arguments} ifname={}:{}", card.name, card.address)
                .trim()
                .to_owned();
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use rstest::rstest;

    use super::*;

    #[rstest]
    #[case("", "multipath=off")]
    #[case("console=tty1", "console=tty1 multipath=off")]
    #[case("multipath=on", "multipath=on")]
    #[case("a multipath=off", "a multipath=off")]
    fn multipath_is_turned_off_once_and_never_against_a_choice(#[case] before: &str, #[case] after: &str) {
        assert_eq!(without_multipath(before), after);
        assert_eq!(without_multipath(after), after);
    }

    #[test]
    fn a_card_is_pinned_once_by_its_address() {
        let cards = [
            Card {
                name: "eno1".into(),
                address: "52:54:00:aa:bb:01".into(),
            },
            Card {
                name: "ens3".into(),
                address: "52:54:00:aa:bb:02".into(),
            },
        ];
        let after = with_pinned_cards("multipath=off ifname=old0:52:54:00:AA:BB:01", &cards);
        assert_eq!(
            after,
            "multipath=off ifname=old0:52:54:00:AA:BB:01 ifname=ens3:52:54:00:aa:bb:02"
        );
        assert_eq!(with_pinned_cards(&after, &cards), after);
        assert_eq!(with_pinned_cards("", &cards[..1]), "ifname=eno1:52:54:00:aa:bb:01");
    }

    #[test]
    fn the_variable_is_found_among_others() {
        let listed = "saved_entry=x\nthird_party_kernel_args_old=no\nthird_party_kernel_args=a=b c\n";
        assert_eq!(variable(listed), "a=b c");
        assert_eq!(variable("other=1\n"), "");
    }
}
