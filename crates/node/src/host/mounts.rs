//! What is mounted, from `/proc/self/mountinfo`. The parser is pure.

use std::{fs, path::Path};

use program::error::{Error, Result};

/// Where the kernel lists what is mounted in this mount namespace.
pub const MOUNTINFO: &str = "/proc/self/mountinfo";

/// Reads what is mounted.
///
/// # Errors
/// When the list cannot be read.
pub fn read() -> Result<String> {
    fs::read_to_string(MOUNTINFO).map_err(|error| Error::file("read", MOUNTINFO, error))
}

/// Whether something is mounted exactly there. The fifth field of a line is the mount point, with blanks, tabs, line
/// breaks and backslashes written as octal numbers.
#[must_use]
pub fn is_mounted(mountinfo: &str, path: &Path) -> bool {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    points.map(unescape).any(|point| Path::new(&point) == path)
}

fn unescape(text: &str) -> String {
    let mut plain = Vec::with_capacity(text.len());
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes
            .get(at + 1..at + 4)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let code = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code.filter(|_| bytes[at] == b'\\') {
            Some(code) => {
                plain.push(code);
                at += 4;
            }
            None => {
                plain.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&plain).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const INFO: &str = "\
24 1 0:22 / /proc rw,nosuid shared:13 - proc proc rw
36 35 98:0 /mnt1 /host/run/cos/state rw,noatime master:1 - ext3 /dev/root rw
37 35 7:0 / /host/tmp/a\\040b\\134c ro - squashfs /dev/loop0 ro
";

    #[test]
    fn what_is_mounted_is_distinguished_from_what_is_not() {
        assert!(is_mounted(INFO, Path::new("/host/run/cos/state")));
        assert!(is_mounted(INFO, Path::new("/host/tmp/a b\\c")));
        // A path of the container, a root of a mount, a part of a path, an option: none of them is a mount point.
        for path in ["/run/cos/state", "/mnt1", "/host/run/cos", "/dev/root", "/host/tmp/a"] {
            assert!(!is_mounted(INFO, Path::new(path)), "{path}");
        }
        assert!(!is_mounted("", Path::new("/")));
    }

    #[test]
    fn this_machine_has_its_root_mounted() {
        assert!(is_mounted(&read().unwrap(), Path::new("/proc")));
    }
}
