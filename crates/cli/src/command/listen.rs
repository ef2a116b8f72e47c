//! Where a server listens, written as for a Go program.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

use anyhow::Context;

/// Listens as a flag says, or not at all: `:8081` is every address of the machine, `0` is off. Must be called in a runtime.
///
/// # Errors
/// The address is none, or taken; the flag is named.
pub(super) fn listen(flag: &str, text: &str) -> anyhow::Result<Option<tokio::net::TcpListener>> {
    let Some(listener) = listen_blocking(flag, text)? else {
        return Ok(None);
    };
    Ok(Some(tokio::net::TcpListener::from_std(listener)?))
}

/// The same outside a runtime.
pub(super) fn listen_blocking(flag: &str, text: &str) -> anyhow::Result<Option<TcpListener>> {
    let failed = || format!("failed to listen on {flag} {text}");
    let addresses = addresses(text).with_context(failed)?;
    if addresses.is_empty() {
        return Ok(None);
    }
    let listener = TcpListener::bind(&addresses[..]).with_context(failed)?;
    listener.set_nonblocking(true)?;
    Ok(Some(listener))
}

/// The addresses to try in turn. A socket for every IPv6 address serves IPv4 too; a machine without IPv6 has none.
fn addresses(text: &str) -> std::io::Result<Vec<SocketAddr>> {
    match text.strip_prefix(':').map(str::parse::<u16>) {
        _ if matches!(text, "" | "0") => Ok(Vec::new()),
        Some(Ok(port)) => Ok(vec![
            (Ipv6Addr::UNSPECIFIED, port).into(),
            (Ipv4Addr::UNSPECIFIED, port).into(),
        ]),
        _ => Ok(text.to_socket_addrs()?.collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<String> {
        addresses(text).unwrap().iter().map(ToString::to_string).collect()
    }

    #[test]
    fn addresses_are_read_as_go_reads_them() {
        assert_eq!(shown(":8081"), ["[::]:8081", "0.0.0.0:8081"]);
        assert_eq!(shown("127.0.0.1:0"), ["127.0.0.1:0"]);
        assert_eq!(shown("[::1]:80"), ["[::1]:80"]);
        assert_eq!((shown("0"), shown("")), (vec![], vec![]));
    }

    #[test]
    fn what_is_no_address_is_refused_with_the_name_of_its_flag() {
        for text in ["8081", ":port", "::1:x"] {
            let error = listen_blocking("--listen", text).unwrap_err();
            assert!(error.to_string().contains(&format!("--listen {text}")), "{error}");
        }
    }

    #[test]
    fn a_socket_on_the_loopback_of_either_family_is_served() {
        for text in ["127.0.0.1:0", "[::1]:0"] {
            let listener = listen_blocking("--listen", text).unwrap().unwrap();
            let address = listener.local_addr().unwrap();
            std::net::TcpStream::connect(address).unwrap();
        }
    }
}
