//! Fetches a file with several connections at once and prints the seconds it took:
//! `fetch ADDRESS PATH CLIENTS [CERTIFICATE]`; with a certificate, over TLS.
//!
//! A client that does little itself: what is measured should be the server. Over TLS it decrypts, with the same cryptography
//! as the programs on the nodes.

use std::{
    error::Error,
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    thread,
};

use clock::Clock;
use release::tls::{Trust, client_config};
use rustls::{ClientConnection, StreamOwned, pki_types::ServerName};

/// What one call takes from the kernel.
const READ_BYTES: usize = 512 * 1024;

type Failure = Box<dyn Error + Send + Sync>;

#[allow(clippy::print_stdout, reason = "the result")]
fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(address), Some(path), Some(clients)) = (args.first(), args.get(1), args.get(2)) else {
        return Err("usage: fetch ADDRESS PATH CLIENTS [CERTIFICATE]".into());
    };
    let certificate = args.get(3).map(std::fs::read_to_string).transpose()?;
    let clock = Clock::system();
    let fetching: Vec<_> = (0..clients.parse()?)
        .map(|_| {
            let (address, path, certificate) = (address.clone(), path.clone(), certificate.clone());
            thread::spawn(move || fetch(&address, &path, certificate))
        })
        .collect();
    for one in fetching {
        one.join().map_err(|_| "a client panicked")??;
    }
    println!("{:.4}", clock.elapsed().as_secs_f64());
    Ok(())
}

fn fetch(address: &str, path: &str, certificate: Option<String>) -> Result<(), Failure> {
    let stream = TcpStream::connect(address)?;
    let Some(certificate) = certificate else {
        return fetch_over(stream, path);
    };
    let trust = Trust {
        certificate,
        server_name: "repository".to_owned(),
    };
    let name = ServerName::try_from("repository")?;
    let session = ClientConnection::new(Arc::new(client_config(Some(&trust))?), name)?;
    fetch_over(StreamOwned::new(session, stream), path)
}

/// Fetches the file; fails unless it is whole.
fn fetch_over(mut stream: impl Read + Write, path: &str) -> Result<(), Failure> {
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
    stream.flush()?;
    let mut buffer = vec![0; READ_BYTES];
    let mut head = Vec::new();
    let end = loop {
        let count = stream.read(&mut buffer)?;
        head.extend_from_slice(buffer.get(..count).unwrap_or_default());
        if let Some(end) = head.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        if count == 0 {
            return Err("no answer".into());
        }
    };
    let text = String::from_utf8_lossy(head.get(..end).unwrap_or_default()).to_lowercase();
    let length = text
        .split("content-length: ")
        .nth(1)
        .and_then(|rest| rest.lines().next());
    let length: usize = length.ok_or("no length")?.trim().parse()?;
    let mut fetched = head.len() - end;
    while fetched < length {
        match stream.read(&mut buffer)? {
            0 => return Err(format!("{fetched} bytes of {length}").into()),
            count => fetched += count,
        }
    }
    match text.starts_with("http/1.1 200") && fetched == length {
        true => Ok(()),
        false => Err(format!("{fetched} bytes of {length}").into()),
    }
}
