//! Enums whose values are texts of the wire contract: labels, states, words of waits.

/// Declares an enum with a text for each value. It is written and read as that text; what is no value cannot be read.
macro_rules! wire_enum {
    (
        $(#[$about:meta])*
        $visibility:vis enum $name:ident {
            $( $(#[$meaning:meta])* $value:ident = $text:literal, )*
        }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        $visibility enum $name {
            $( $(#[$meaning])* $value, )*
        }

        impl $name {
            /// All values, in the order of their declaration.
            pub const ALL: &[Self] = &[$( Self::$value, )*];

            /// The text on the wire.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $( Self::$value => $text, )*
                }
            }

            /// The value with a text, if there is one.
            #[must_use]
            pub fn parse(text: &str) -> Option<Self> {
                match text {
                    $( $text => Some(Self::$value), )*
                    _ => None,
                }
            }
        }

        // By text: lists for users are sorted alphabetically.
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> std::cmp::Ordering {
                self.as_str().cmp(other.as_str())
            }
        }

        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
                Some(self.cmp(other))
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }

        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.as_str())
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
                Self::parse(&text)
                    .ok_or_else(|| serde::de::Error::unknown_variant(&text, &[$( $text, )*]))
            }
        }
    };
}

pub(crate) use wire_enum;
