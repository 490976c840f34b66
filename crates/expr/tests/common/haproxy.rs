//! Runs the installed haproxy with rules that set header fields, and returns their values.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

/// A process that ends with the test.
struct Running(Child, std::path::PathBuf);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
        let _ = std::fs::remove_dir_all(&self.1);
    }
}

/// HAProxy 3.2, for which the cases were written (`scripts/peers`). Other versions differ in details.
pub fn program() -> Option<PathBuf> {
    let path = PathBuf::from(std::env::var_os("MANYLANE_HAPROXY")?);
    let version = Command::new(&path).arg("-v").stdin(Stdio::null()).output();
    if !version.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains("version 3.2.")) {
        eprintln!("NOT SHOWN HERE: there is no HAProxy 3.2, so it was not asked");
        return None;
    }
    Some(path)
}

/// Sends the request of [`World`](super::World) through `rules` and returns the values of the fields. haproxy
/// sends them through `hex`; they are decoded here. `None` without haproxy.
pub fn run(rules: &str, fields: &[String]) -> Option<Vec<Vec<u8>>> {
    let program = program()?;
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("manylane-expr-{}-{count}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // The port may be taken in the meantime. haproxy then refuses to start, and the test fails with its
    // message.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let body: String = fields.iter().map(|name| format!("[%[req.fhdr({name}),hex]]\n")).collect();
    std::fs::write(folder.join("body"), body).unwrap();
    let config = format!(
        "global\n    nbthread 1\ndefaults\n    mode http\n    timeout client 2s\n    timeout connect 5s\n    \
         timeout server 5s\nfrontend f\n    bind {address}\n    http-request set-var(txn.i) int(5)\n    \
         http-request set-var(txn.s) str(abc)\n{rules}    \
         http-request return status 200 content-type text/plain lf-file {}\n",
        folder.join("body").display()
    );
    std::fs::write(folder.join("cfg"), &config).unwrap();
    let child = Command::new(program)
        .args(["-db", "-f"])
        .arg(folder.join("cfg"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.expect("it just told its version");
    let mut running = Running(child, folder);
    let mut stream = loop {
        if let Ok(stream) = TcpStream::connect(address) {
            break stream;
        }
        if running.0.try_wait().unwrap().is_some() {
            let mut why = String::new();
            running.0.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("haproxy refused this:\n{config}\n{why}");
        }
        std::thread::yield_now();
    };
    let request = b"GET /a/b?x=1&y=2 HTTP/1.1\r\nhost: 127.0.0.1:18099\r\na: one, two ,three\r\n\
        a: \"x,y\", four\r\ne:\r\ng: x,,y\r\nn: 12abc\r\np: 1.2.3.4:80\r\ns: ::1\r\ncookie: c=1; d=\"23\"; \
        c=4\r\n\
        cookie: c=9\r\nauthorization: Basic dXNlcjpwYTpzcw==\r\nconnection: close\r\n\r\n";
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let answer = String::from_utf8_lossy(&answer).into_owned();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{config}\n{answer}");
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    let lines: Vec<Vec<u8>> = body
        .lines()
        .map(|line| {
            let digits = line.trim_matches(['[', ']', '-']);
            let pairs = digits.as_bytes().chunks(2);
            pairs.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
        })
        .collect();
    assert_eq!(lines.len(), fields.len(), "{answer}");
    Some(lines)
}
