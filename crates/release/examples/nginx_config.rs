//! The configuration of nginx that ships, for measurements: `nginx_config LISTEN ROOT STATE`.

use std::path::Path;

use release::nginx::{Nginx, config};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [listen, root, state] = args.as_slice() else {
        return Err("usage: nginx_config LISTEN ROOT STATE".into());
    };
    let nginx = Nginx {
        listen,
        root: Path::new(root),
        state: Path::new(state),
    };
    std::io::Write::write_all(&mut std::io::stdout(), config(&nginx)?.as_bytes())?;
    Ok(())
}
