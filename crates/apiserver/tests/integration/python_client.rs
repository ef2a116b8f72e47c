//! The Python `kubernetes` client against the HTTP door. `PYTHON` names another interpreter than `python3`.

// Everything here is a test, also what is not marked as one.

use crate::support;
use std::process::Command;

const SCRIPT: &str = include_str!("support/client.py");

#[test]
fn the_python_client_lists_watches_patches_and_deletes() {
    let python = std::env::var("PYTHON").unwrap_or_else(|_| "python3".into());
    let importable = Command::new(&python)
        .args(["-c", "import kubernetes"])
        .output()
        .is_ok_and(|output| output.status.success());
    if !importable {
        println!("SKIPPED: {python} cannot import the module `kubernetes`");
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let server = support::server();
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(server.clone().serve(listener, std::future::pending()));
    let definition = support::widget_crd().to_string();
    let output = Command::new(&python)
        .args(["-c", SCRIPT, &format!("http://{address}"), &definition])
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}");
    assert_eq!(out.trim(), "done");
    assert!(
        server.store().get("example.io", "widgets", "default", "w").is_none(),
        "the script deleted it"
    );
    assert_eq!(
        server.store().get("", "configmaps", "default", "m").unwrap()["data"]["k"],
        "w"
    );
}
