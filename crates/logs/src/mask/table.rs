//! What is masked: one row per kind of secret. docs/logs.md lists the same rows; a test compares.

/// A kind of secret in lines.
pub struct Pattern {
    /// What stands in place of the secret: `[masked: <name>]`.
    pub name: &'static str,
    /// What it is, for users.
    pub what: &'static str,
    /// Words, in lower case, of which each line with such a secret has one. Lines without any are not searched.
    pub words: &'static [&'static str],
    /// Where it is. The group `s` is the secret; what is outside stays.
    pub regex: &'static str,
}

/// All of them, in the order in which they are applied: the more exact ones first.
pub const PATTERNS: &[Pattern] = &[
    Pattern {
        name: "private-key",
        what: "PEM private keys: on one line, or on several until `-----END`",
        words: &["private key-----"],
        regex: r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?P<s>.*?)(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)",
    },
    Pattern {
        name: "jwt",
        what: "JSON Web Tokens, also of service accounts",
        words: &["eyj"],
        regex: r"(?P<s>\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{2,}\.?[A-Za-z0-9_-]*)",
    },
    Pattern {
        name: "authorization",
        what: "values of `Authorization` and `Proxy-Authorization` headers",
        words: &["authorization"],
        regex: r#"(?i)\b(?:proxy-)?authorization\\?["']?\s*[:=]\s*(?:map\[|\[)?\\?["']?(?P<s>(?:(?:bearer|basic|digest|token|negotiate)\s+)?[^\s"'\\,;\]}]+)"#,
    },
    Pattern {
        name: "bearer",
        what: "tokens after the word `Bearer`",
        words: &["bearer "],
        regex: r"(?i)\bbearer\s+(?P<s>[A-Za-z0-9_~+/.:=-]{8,})",
    },
    Pattern {
        name: "cookie",
        what: "values of `Cookie` and `Set-Cookie` headers",
        words: &["cookie"],
        regex: r#"(?i)\b(?:set-)?cookie\\?["']?\s*[:=]\s*\[?\\?["']?(?P<s>[^\r\n"'\\\]]+)"#,
    },
    Pattern {
        name: "join-token",
        what: "RKE2 and K3s join tokens (`K10…::…`)",
        words: &["k10"],
        regex: r"(?P<s>\bK10[0-9a-fA-F]{16,}(?:::[^\s\x22'\\,;]+)?)",
    },
    Pattern {
        name: "rancher-token",
        what: "Rancher API tokens (`token-xxxxx:…`, `kubeconfig-u-…:…`)",
        words: &["token-", "kubeconfig-"],
        regex: r"\b(?:token|kubeconfig)-[a-z0-9.-]{2,}:(?P<s>[A-Za-z0-9]{20,})",
    },
    Pattern {
        name: "bootstrap-token",
        what: "bootstrap tokens of Kubernetes (`abcdef.0123456789abcdef`)",
        words: &["token", "bootstrap"],
        regex: r"(?:^|[^A-Za-z0-9.])(?P<s>[a-z0-9]{6}\.[a-z0-9]{16})(?:$|[^A-Za-z0-9.])",
    },
    Pattern {
        name: "kubeconfig",
        what: "`client-key-data`, `client-certificate-data` and `token` of kubeconfig files",
        words: &["key-data", "certificate-data"],
        regex: r#"(?i)\bclient-(?:key|certificate)-data\\?["']?\s*[:=]\s*\\?["']?(?P<s>[A-Za-z0-9+/=_-]+)"#,
    },
    Pattern {
        name: "url",
        what: "passwords in URLs (`https://user:password@host`)",
        words: &["://"],
        regex: r#"[A-Za-z][A-Za-z0-9+.-]*://[^\s/:@"']*:(?P<s>[^\s/"']+)@"#,
    },
    Pattern {
        name: "query",
        what: "secrets in queries of URLs (`?token=…`, `&X-Amz-Signature=…`)",
        words: &["?", "&"],
        regex: r#"(?i)[?&](?:[a-z0-9._-]*(?:token|secret|password|signature|credential|apikey|api_key|access_key))=(?P<s>[^&\s"'\\]+)"#,
    },
    Pattern {
        name: "hash",
        what: "hashes of passwords, as in `/etc/shadow` and cloud-init (`$6$…`)",
        words: &["$1$", "$2", "$5$", "$6$", "$y$", "$argon2"],
        regex: r"(?P<s>\$(?:1|2[abxy]?|5|6|y|argon2id?)\$[A-Za-z0-9./$=,+-]{16,})",
    },
    Pattern {
        name: "cloud-init",
        what: "`passwd`, `password`, `plain_text_passwd` and lists of `chpasswd` in cloud-init",
        words: &["passwd"],
        regex: r#"(?i)(?:^|[^A-Za-z0-9/])(?:[a-z0-9_-]*passwd)\\?["']?\s*[:=]\s*\\?["']?(?P<s>[^\s"'\\,}]+)"#,
    },
    Pattern {
        name: "aws-key",
        what: "access keys of object stores (`AKIA…`)",
        words: &["akia", "asia"],
        regex: r"(?P<s>\b(?:AKIA|ASIA)[A-Z0-9]{16}\b)",
    },
    Pattern {
        name: "argument",
        what: "values of arguments (`--token …`, `--password=…`)",
        words: &["--"],
        regex: r#"(?i)(?:^|[\s"'\[,])--?[a-z0-9-]*(?:token|password|passwd|secret|api-key|access-key|private-key)(?:[\s=]|\\?["'],?\s*\\?["'])\s*\\?["']?(?P<s>[^\s"'\\,\]-][^\s"'\\,\]]*)"#,
    },
    Pattern {
        name: "value",
        what: "values of fields and variables whose name ends in token, password, passphrase, secret, or a key",
        words: &[
            "token",
            "passw",
            "passph",
            "secret",
            "_key",
            "-key",
            "apikey",
            "accesskey",
            "secretkey",
            "privatekey",
        ],
        regex: r#"(?i)[a-z0-9_.-]*(?:token|password|passphrase|secret|secret[_-]?access[_-]?key|secret[_-]?key|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|encryption[_-]?key|auth[_-]?key)\\?["']?\s*(?::=|=>|[:=])\s*(?:b?\\?["'](?P<s>[^"'\\]+)|(?P<t>[^\s"'\\,;(){}\[\]]+))"#,
    },
];
