//! Serves an empty embedded API on a loopback port, to be looked at with kubectl: `cargo run -p apiserver --example serve`.

use std::sync::Arc;

use apiserver::{ApiServer, Config};

#[tokio::main(flavor = "current_thread")]
async fn main() -> std::io::Result<()> {
    // The example is a program of its own: it may look at the wall clock.
    #[allow(clippy::disallowed_methods)]
    let now = Arc::new(jiff::Timestamp::now);
    let server = ApiServer::new(Config::new(now));
    let port = std::env::args().nth(1).unwrap_or_else(|| "0".into());
    let listener = tokio::net::TcpListener::bind(format!("127.0.0.1:{port}")).await?;
    #[allow(clippy::print_stdout)]
    {
        println!("kubectl --server http://{} get namespaces", listener.local_addr()?);
    }
    server
        .serve(listener, async { tokio::signal::ctrl_c().await.unwrap_or(()) })
        .await;
    Ok(())
}
