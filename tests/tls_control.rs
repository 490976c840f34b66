//! The run-time interface over TLS: `stats socket ... ssl`.

use crate::common;
use crate::tls::{Authority, openssl, text};

use common::watch::ask;
use common::{DEFAULTS, Ended, Manylane, check, connect, fd, listener};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A program with two command sockets, of which one speaks TLS.
struct Controlled {
    _program: Manylane,
    /// The address of the one with TLS.
    address: SocketAddr,
    /// The other one.
    socket: PathBuf,
}

impl Controlled {
    fn start(authority: &Authority, options: &str, more: &str) -> Self {
        let (listening, address) = listener();
        let socket = authority.folder.0.join("control");
        let config = format!(
            "global\n stats socket {} level admin\n stats socket {} ssl {options}\n{more}{DEFAULTS} mode \
             http\n",
            socket.display(),
            fd(&listening),
        );
        Self { _program: Manylane::start_ready(&config), address, socket }
    }

    /// What the interface says over TLS, and what the client knows of the connection.
    fn ask(&self, arguments: &[&str], lines: &str) -> [String; 2] {
        let to = self.address.to_string();
        let quiet = ["s_client", "-connect", &to, "-quiet"];
        let output = openssl(&[&quiet[..], arguments].concat(), lines);
        [text(&output.stdout), text(&output.stderr)]
    }

    /// The name in the certificate that clients get.
    fn shown(&self) -> String {
        let [_, reported] = self.ask(&[], "show version\n");
        let subject = reported.lines().find(|line| line.starts_with("depth=0 "));
        let subject = subject.unwrap_or_else(|| panic!("{reported}"));
        let name = subject.rsplit_once("CN").unwrap().1.trim_start_matches([' ', '=']);
        name.split(',').next().unwrap().to_owned()
    }
}

#[test]
fn commands_and_answers_go_over_tls() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let options = format!("crt {} level operator", certificate.display());
    let program = Controlled::start(&authority, &options, " description over TLS\n");
    let version = format!("{}\n\n", env!("CARGO_PKG_VERSION"));
    for tls in ["-tls1_2", "-tls1_3"] {
        assert_eq!(program.ask(&[tls], "show version\n")[0], version);
        assert_eq!(
            program.ask(&[tls], "prompt i\nshow version\nshow cli level\nquit\n")[0],
            format!("\n{version}operator\n\n")
        );
        let plain = ask(&program.socket, "help");
        assert!(plain.len() > 4000, "{plain}");
        let [said, reported] = program.ask(&[tls], "help\n");
        assert!(said.len() > 3000 && said.ends_with("\n\n"), "{said}{reported}");
        assert!(program.ask(&[tls], "show info\n")[0].contains("\ndescription: over TLS\n"));
    }
    // Who speaks no TLS learns nothing.
    let mut plain = connect(program.address);
    plain.write_all(b"show version\n").unwrap();
    let mut said = Vec::new();
    let _ = std::io::Read::read_to_end(&mut plain, &mut said); // a reset is as good as an end
    assert!(said.len() < 10 && said.first() == Some(&21), "an alert: {said:?}");
}

#[test]
fn operators_show_certificates() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let client = authority.bundle("client.pem", &["operator"]).display().to_string();
    let other = Authority::new();
    let stranger = other.bundle("client.pem", &["operator"]).display().to_string();
    let ca = authority.file();
    let options = format!("crt {} verify required ca-file {}", certificate.display(), ca.display());
    let program = Controlled::start(&authority, &options, "");
    let version = format!("{}\n\n", env!("CARGO_PKG_VERSION"));
    let with = |file: &str| program.ask(&["-cert", file, "-key", file], "show version\n")[0].clone();
    assert_eq!(with(&client), version);
    assert_eq!(with(&stranger), "");
    assert_eq!(program.ask(&[], "show version\n")[0], "");
}

#[test]
fn a_new_certificate_is_shown_after_commands_and_reloads() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let new = std::fs::read_to_string(authority.bundle("b.pem", &["b.example"])).unwrap();
    let program = Controlled::start(&authority, &format!("crt {}", certificate.display()), "");
    let name = certificate.display();
    assert_eq!(program.shown(), "a.example");
    let ask = |line: &str| ask(&program.socket, line);
    assert!(ask(&format!("set ssl cert {name} <<\n{new}")).starts_with("Transaction created"));
    assert!(ask(&format!("commit ssl cert {name}")).ends_with("\nSuccess!\n\n"));
    assert_eq!(program.shown(), "b.example");
    assert!(ask("reload").contains("serves"));
    assert_eq!(program.shown(), "a.example", "the file has not changed");
    std::fs::write(&certificate, new).unwrap();
    assert!(ask("reload").contains("serves"));
    assert_eq!(program.shown(), "b.example");
}

/// Rights and TLS of a socket are those of one line: never the level of one file and the `verify` of another.
#[test]
fn a_reload_takes_rights_and_tls_of_a_socket_from_its_new_line() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let client = authority.bundle("client.pem", &["operator"]).display().to_string();
    let new = std::fs::read_to_string(authority.bundle("b.pem", &["b.example"])).unwrap();
    let (listening, address) = listener();
    let (socket, file) = (authority.folder.0.join("control"), authority.folder.0.join("test.cfg"));
    let name = certificate.display();
    let write = |options: &str| {
        let config = format!(
            "global\n stats socket {} level admin\n stats socket {} {options}\n{DEFAULTS} mode http\n",
            socket.display(),
            fd(&listening),
        );
        std::fs::write(&file, config).unwrap();
    };
    let verify = format!("verify required ca-file {}", authority.file().display());
    write(&format!("ssl crt {name} level admin {verify}"));
    let _program = Ended(common::command().arg("-f").arg(&file).spawn().unwrap());
    let to = address.to_string();
    let over_tls = |arguments: &[&str], lines: &str| {
        openssl(&[&["s_client", "-connect", &to, "-quiet"], arguments].concat(), lines)
    };
    let level = |arguments: &[&str]| text(&over_tls(arguments, "show cli level\n").stdout);
    let cert = ["-cert", &client, "-key", &client];
    assert_eq!((level(&cert), level(&[])), ("admin\n\n".into(), String::new()));
    let ask = |line: &str| ask(&socket, line);
    let reload = || {
        let reloaded = ask("reload");
        assert!(reloaded.contains("Reloaded") && !reloaded.contains("keeps"), "{reloaded}");
    };
    write(&format!("ssl crt {name} level user"));
    reload();
    assert_eq!((level(&cert), level(&[])), ("user\n\n".into(), "user\n\n".into()));
    // A later command reaches what the new line shows.
    let shown = || text(&over_tls(&[], "show version\n").stderr);
    assert!(ask(&format!("set ssl cert {name} <<\n{new}")).starts_with("Transaction created"));
    assert!(ask(&format!("commit ssl cert {name}")).ends_with("\nSuccess!\n\n"));
    assert!(shown().contains("b.example"), "{}", shown());
    write(&format!("ssl crt {name} level operator {verify}"));
    reload();
    assert_eq!((level(&cert), level(&[])), ("operator\n\n".into(), String::new()));
    write("level user");
    reload();
    let mut plain = connect(address);
    plain.write_all(b"show cli level\n").unwrap();
    assert_eq!(common::read_all(&mut plain), "user\n\n");
    // Other options of the socket stay those of the start, and rights and TLS change all the same.
    write(&format!("ssl crt {name} level operator {verify} backlog 100"));
    let keeps = "'stats socket' keeps its addresses and socket options from the start";
    assert!(ask("reload").contains(keeps));
    assert_eq!((level(&cert), level(&[])), ("operator\n\n".into(), String::new()));
    // A socket whose line is gone is served as by its last one, not as at the start.
    write(&format!("ssl crt {name} level user interface lo"));
    assert!(ask("reload").contains(keeps));
    assert_eq!((level(&cert), level(&[])), ("operator\n\n".into(), String::new()));
}

#[test]
fn clients_that_do_not_shake_hands_keep_nobody_out() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let limits = " stats maxconn 1\n stats timeout 5m\n";
    let program = Controlled::start(&authority, &format!("crt {}", certificate.display()), limits);
    let begun = Instant::now();
    let mut silent: Vec<_> = (0..70).map(|_| connect(program.address)).collect();
    assert!(ask(&program.socket, "show version").starts_with(env!("CARGO_PKG_VERSION")));
    assert!(program.ask(&[], "show version\n")[0].starts_with(env!("CARGO_PKG_VERSION")));
    // There are 64 places: the oldest ones were closed, and this operator closed one more.
    let mut is_open = |number: usize| {
        silent[number].set_nonblocking(true).unwrap();
        let outcome = silent[number].read(&mut [0]);
        outcome.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    };
    let open: Vec<_> = (0..70).filter(|number| is_open(*number)).collect();
    // Later the others are closed, too, since a handshake has 10 s.
    assert!(open == (7..70).collect::<Vec<_>>() || begun.elapsed().as_secs() >= 10, "{open:?}");
}

fn refusal(global: &str) -> String {
    text(&check(&format!("global\n{global}\nfrontend f\n mode tcp\n"), &[]).stderr)
}

#[test]
fn what_cannot_be_is_refused() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let crt = certificate.display();
    for options in ["crt x.pem", "verify required", "alpn h2"] {
        let said = refusal(&format!(" stats socket /x {options}"));
        assert!(said.contains("options of TLS expect 'ssl' beside them"), "{said}");
    }
    let said = refusal(" stats socket /x ssl");
    assert!(said.contains("no certificate is given: add 'crt <file>'"), "{said}");
    let said = refusal(&format!(" stats socket /x ssl crt {crt} expose-fd listeners"));
    assert!(said.contains("descriptors cannot pass within TLS"), "{said}");
    let said = refusal(&format!(" stats socket /x ssl crt {crt} allow-0rtt"));
    assert!(said.contains("commands are not taken as early data"), "{said}");
    let said = refusal(&format!(" stats socket /x ssl crt-list list verify required ca-file {crt}"));
    assert!(said.contains("use 'crt' beside 'verify'"), "{said}");
    let missing: &Path = Path::new("/nowhere/none.pem");
    let said = refusal(&format!(" stats socket /x ssl crt {}", missing.display()));
    assert!(said.contains("/nowhere/none.pem"), "{said}");
    // Certificates of a 'crt-store' section have their names there, too.
    let store =
        format!("crt-store own\n load crt {crt} alias it\nglobal\n stats socket /x ssl crt @own/it\n");
    let said = check(&format!("{store}frontend f\n mode tcp\n"), &[]);
    assert!(said.status.success(), "{}", text(&said.stderr));
    // The master CLI speaks none.
    let bound = authority.folder.0.join("bound");
    let config = format!("{DEFAULTS} mode http\nlisten l\n bind unix@{}\n", bound.display());
    let file = authority.folder.file("m.cfg", &config);
    let said = Command::new(common::manylane())
        .args(["-W", "-S", &format!("{}/m,ssl,crt,{crt}", authority.folder.0.display()), "-f"])
        .arg(file)
        .output()
        .unwrap();
    assert!(!said.status.success());
    assert!(
        text(&said.stderr).contains("the master speaks no TLS: leave 'ssl' out"),
        "{}",
        text(&said.stderr)
    );
}
