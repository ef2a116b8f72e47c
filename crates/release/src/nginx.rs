//! nginx instead of our server: its configuration for an image that is mounted. Pure: it only writes the text.
//!
//! Same paths and answers as [`crate::repo`], for clusters whose policy requires nginx. The image has to be mounted below
//! the document root as `harvester-iso`, which takes a privileged container.

use std::path::Path;

use serving::Limits;

use crate::{manifest, repo};

/// Where the existing toolkit mounts the image below.
pub const DOCUMENT_ROOT: &str = "/srv/www/htdocs";

/// How nginx is to run.
#[derive(Clone, Copy, Debug)]
pub struct Nginx<'a> {
    /// What it listens on: a port, or address and port.
    pub listen: &'a str,
    /// The same over TLS.
    pub secure: Option<Secure<'a>>,
    /// The folder that holds `harvester-iso`.
    pub root: &'a Path,
    /// A folder that it may write to: its process id and temporary files.
    pub state: &'a Path,
}

/// How nginx is to serve over TLS.
#[derive(Clone, Copy, Debug)]
pub struct Secure<'a> {
    /// What it listens on: a port, or address and port.
    pub listen: &'a str,
    /// The folder with `tls.crt` and `tls.key`, as a Secret is mounted.
    pub folder: &'a Path,
}

/// A path that cannot stand in the configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("failed to write the configuration of nginx: {0:?} has characters that nginx reads as its own")]
pub struct NotQuotable(pub String);

/// The configuration. Its process stays in the foreground and logs to standard error.
///
/// # Errors
/// When a path or the address has quotes, dollars, blanks, semicolons or braces.
pub fn config(nginx: &Nginx<'_>) -> Result<String, NotQuotable> {
    let listen = plain(nginx.listen)?;
    let (root, state) = (nginx.root.to_string_lossy(), nginx.state.to_string_lossy());
    let (root, state) = (plain(&root)?, plain(&state)?);
    let secure = nginx.secure.as_ref().map(secure).transpose()?.unwrap_or_default();
    let (prefix, idle) = (repo::PREFIX, Limits::REPOSITORY.idle.as_secs());
    let (head, stall) = (
        Limits::REPOSITORY.header_time.as_secs(),
        Limits::REPOSITORY.stall.as_secs(),
    );
    Ok(format!(
        "daemon off;
worker_processes 2;
pid {state}/nginx.pid;
error_log stderr warn;

events {{
    worker_connections {connections};
}}

http {{
    access_log off;
    server_tokens off;
    # Behind a Service, its own port is not the one that clients see.
    absolute_redirect off;
    default_type application/octet-stream;
    types {{
        text/html html;
        text/plain txt yaml yml;
    }}
    sendfile on;
    tcp_nopush on;
    keepalive_timeout {idle}s;
    client_header_timeout {head}s;
    send_timeout {stall}s;
    client_body_temp_path {state}/body;
    proxy_temp_path {state}/proxy;
    fastcgi_temp_path {state}/fastcgi;
    uwsgi_temp_path {state}/uwsgi;
    scgi_temp_path {state}/scgi;

    server {{
        listen {listen};
{secure}        root {root};
        # A link in the image must not lead to files of this machine; nginx cannot follow only those that stay in it.
        disable_symlinks on from=$document_root;
        location = /healthz {{
            default_type text/plain;
            return 200 \"ok\\n\";
        }}
        location = / {{
            return 301 /{prefix}/;
        }}
        location = /{prefix} {{
            return 301 /{prefix}/;
        }}
        location /{prefix}/ {{
            autoindex on;
            autoindex_exact_size on;
            if ($request_method !~ ^(GET|HEAD)$) {{
                return 405;
            }}
        }}
        location = /{manifest} {{
            default_type application/json;
        }}
        location / {{
            return 404;
        }}
    }}
}}
",
        connections = Limits::REPOSITORY.connections,
        manifest = manifest::file_name(),
    ))
}

/// The lines of a server that serves over TLS, too. The same protocol as ours; a buffer as large as a record.
fn secure(secure: &Secure<'_>) -> Result<String, NotQuotable> {
    let (listen, folder) = (plain(secure.listen)?, secure.folder.to_string_lossy());
    let folder = plain(&folder)?;
    Ok(format!(
        "        listen {listen} ssl;
        ssl_certificate {folder}/tls.crt;
        ssl_certificate_key {folder}/tls.key;
        ssl_protocols TLSv1.3;
        ssl_buffer_size 16k;
        ssl_session_tickets off;
"
    ))
}

fn plain(text: &str) -> Result<&str, NotQuotable> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "/._-:[]".contains(c);
    if !text.is_empty() && text.chars().all(allowed) {
        Ok(text)
    } else {
        Err(NotQuotable(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nginx_would_read_as_its_own_is_refused() {
        let (root, state) = (Path::new(DOCUMENT_ROOT), Path::new("/tmp/a;b"));
        let listen = "80";
        let error = config(&Nginx {
            listen,
            secure: None,
            root,
            state,
        })
        .unwrap_err();
        assert_eq!(error, NotQuotable("/tmp/a;b".to_owned()));
        let text = config(&Nginx {
            listen,
            secure: None,
            root,
            state: root,
        });
        assert!(text.unwrap().contains("root /srv/www/htdocs;"));
    }
}
