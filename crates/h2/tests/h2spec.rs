//! `h2spec` tests the example server: all sections, strict. If the tool is missing, the test prints that;
//! `scripts/setup test` installs it.
#![cfg(not(any(loom, manylane_sim)))]

#[path = "../examples/server.rs"]
#[allow(dead_code)]
mod server;

use manylane_h2::Config;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

fn tool() -> Option<PathBuf> {
    let own = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/peers/h2spec"));
    if own.exists() {
        return Some(own);
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("h2spec")).find(|program| program.exists())
}

#[test]
fn h2spec_finds_nothing() {
    let Some(tool) = tool() else {
        return println!("NOT SHOWN HERE: there is no h2spec: 'scripts/setup test' installs what is missing");
    };
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("bound").port();
    std::thread::spawn(move || server::serve(&listener, Config::default()));
    let output = Command::new(tool)
        .args(["--strict", "--timeout", "10", "--host", "127.0.0.1", "--port", &port.to_string()])
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let summary = said.lines().find(|line| line.contains("tests,")).unwrap_or("").to_owned();
    assert!(output.status.success(), "{said}");
    assert!(summary.contains(" 0 failed") && summary.starts_with("146 tests"), "{said}");
    println!("{summary}");
}
