//! The repository alone, for measurements: `serve FILE.iso ADDRESS [TLS_ADDRESS FOLDER]`; the folder has `tls.crt` and
//! `tls.key`.

use std::{path::Path, sync::Arc};

use clock::Clock;
use release::{
    iso::Iso,
    repo::{Doors, Limits, runtime, serve},
    tls::{Identity, acceptor},
};
use tokio::net::TcpListener;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(file), Some(address)) = (args.first(), args.get(1)) else {
        return Err("usage: serve FILE.iso ADDRESS [TLS_ADDRESS FOLDER]".into());
    };
    let iso = Arc::new(Iso::open(file.as_ref())?);
    let secure = args.get(2).zip(args.get(3));
    runtime()?.block_on(async {
        let mut doors = Doors::from(TcpListener::bind(address).await?);
        if let Some((address, folder)) = secure {
            let folder = Path::new(folder);
            let identity = Identity::read(&folder.join("tls.crt"), &folder.join("tls.key"))?;
            doors = doors.and(TcpListener::bind(address).await?, acceptor(&identity)?);
        }
        serve(doors, iso, Limits::REPOSITORY, Clock::system(), std::future::pending()).await;
        Ok(())
    })
}
