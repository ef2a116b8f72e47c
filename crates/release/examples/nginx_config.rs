//! The configuration of nginx that ships, for measurements: `nginx_config LISTEN ROOT STATE [TLS_LISTEN FOLDER]`; the folder
//! has `tls.crt` and `tls.key`.

use std::path::Path;

use release::nginx::{Nginx, Secure, config};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (Some(listen), Some(root), Some(state)) = (args.first(), args.get(1), args.get(2)) else {
        return Err("usage: nginx_config LISTEN ROOT STATE [TLS_LISTEN FOLDER]".into());
    };
    let secure = args.get(3).zip(args.get(4)).map(|(listen, folder)| Secure {
        listen,
        folder: Path::new(folder),
    });
    let nginx = Nginx {
        listen,
        secure,
        root: Path::new(root),
        state: Path::new(state),
    };
    std::io::Write::write_all(&mut std::io::stdout(), config(&nginx)?.as_bytes())?;
    Ok(())
}
