//! The repository alone, for measurements: `serve FILE.iso ADDRESS`.

use std::sync::Arc;

use clock::Clock;
use release::{
    iso::Iso,
    repo::{Limits, serve},
};
use tokio::net::TcpListener;

// One thread, as in the command `repo`.
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(file), Some(address)) = (args.next(), args.next()) else {
        return Err("usage: serve FILE.iso ADDRESS".into());
    };
    let iso = Arc::new(Iso::open(file.as_ref())?);
    let listener = TcpListener::bind(address).await?;
    serve(
        listener,
        iso,
        Limits::REPOSITORY,
        Clock::system(),
        std::future::pending(),
    )
    .await;
    Ok(())
}
