//! How long the steps of a node may take, all in one place.
//!
//! These are the times after which a program gives up. The manager calls a plan stalled long before, and shows what is
//! waited for all the while; so waits that depend on administrators, VMs or terabytes have hours here.

use std::time::Duration;

/// Declares the limits: name, default, meaning.
macro_rules! limits {
    ($( $(#[$doc:meta])* $name:ident: $minutes:literal ),* $(,)?) => {
        /// How long the steps of a node may take.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Limits {
            $( $(#[$doc])* pub $name: Duration, )*
        }

        impl Default for Limits {
            fn default() -> Self {
                Self { $( $name: Duration::from_mins($minutes), )* }
            }
        }

        impl Limits {
            /// All names, as they are written on a command line, with their defaults in minutes.
            pub const TABLE: &[(&str, u64)] = &[$( (stringify!($name), $minutes) ),*];

            /// Sets one by its name, with `-` or `_` in it. Returns whether there is one of that name.
            pub fn set(&mut self, name: &str, limit: Duration) -> bool {
                match name.replace('-', "_").as_str() {
                    $( stringify!($name) => self.$name = limit, )*
                    _ => return false,
                }
                true
            }
        }
    };
}

limits! {
    /// A file of the node, or a tool of the node that answers at once.
    host: 10,
    /// A request to the API server, while it may restart.
    request: 30,
    /// The repository is served.
    repository: 60,
    /// Volumes are whole: a rebuild copies terabytes.
    volumes: 720,
    /// VMs that cannot migrate are stopped.
    detector: 30,
    /// VMs have left the node.
    vms: 720,
    /// Budgets of their migrations are gone.
    budgets: 60,
    /// Fleet has settled. Afterwards the upgrade continues anyway.
    fleet: 3,
    /// Rancher has upgraded RKE2 on the node.
    rke2: 180,
    /// The image of the operating system has come.
    download: 180,
    /// The operating system is on the disk.
    install: 120,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_set_by_its_name_and_others_are_refused() {
        let mut limits = Limits::default();
        for (name, minutes) in Limits::TABLE {
            assert!(limits.set(name, Duration::from_mins(*minutes)), "{name}");
        }
        assert_eq!(limits, Limits::default());
        assert!(limits.set("rke2", Duration::from_secs(1)));
        assert_eq!(limits.rke2, Duration::from_secs(1));
        assert!(!limits.set("lunch", Duration::from_secs(1)));
    }
}
