//! Fetches a file with several connections at once and prints the seconds it took: `fetch ADDRESS PATH CLIENTS`.
//!
//! A client that does little itself: what is measured should be the server.

use std::{
    error::Error,
    io::{Read, Write},
    net::TcpStream,
    thread,
};

use clock::Clock;

/// What one call takes from the kernel.
const READ_BYTES: usize = 512 * 1024;

type Failure = Box<dyn Error + Send + Sync>;

#[allow(clippy::print_stdout, reason = "the result")]
fn main() -> Result<(), Failure> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [address, path, clients] = args.as_slice() else {
        return Err("usage: fetch ADDRESS PATH CLIENTS".into());
    };
    let clock = Clock::system();
    let fetching: Vec<_> = (0..clients.parse()?)
        .map(|_| {
            let (address, path) = (address.clone(), path.clone());
            thread::spawn(move || fetch(&address, &path))
        })
        .collect();
    for one in fetching {
        one.join().map_err(|_| "a client panicked")??;
    }
    println!("{:.4}", clock.elapsed().as_secs_f64());
    Ok(())
}

/// Fetches the file; fails unless it is whole.
fn fetch(address: &str, path: &str) -> Result<(), Failure> {
    let mut stream = TcpStream::connect(address)?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
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
    loop {
        match stream.read(&mut buffer)? {
            0 if fetched == length && text.starts_with("http/1.1 200") => return Ok(()),
            0 => return Err(format!("{fetched} bytes of {length}").into()),
            count => fetched += count,
        }
    }
}
