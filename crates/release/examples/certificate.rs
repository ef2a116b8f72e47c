//! A certificate for measurements: `certificate FOLDER` writes `tls.crt` and `tls.key` there, for the name `repository`.

use std::path::Path;

use clock::Clock;
use release::tls::mint;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: certificate FOLDER")?;
    let identity = mint(&["repository".to_owned()], Clock::system().now())?;
    std::fs::write(Path::new(&folder).join("tls.crt"), identity.certificate)?;
    std::fs::write(Path::new(&folder).join("tls.key"), identity.key)?;
    Ok(())
}
