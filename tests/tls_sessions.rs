//! TLS session resumption: with ticket keys from a file, and lifetimes.

use crate::common;
use crate::tls::{Authority, openssl, text};
use crate::tls_limits::get;

use common::watch::{Haproxy, Played, ask, both, until};
use common::{DEFAULTS, Manylane, check, fd, listener};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

const PAGE: &str = " http-request return status 200 content-type text/plain string hello\n";

/// A program whose listener resumes sessions, and its command socket.
struct Served {
    _program: Manylane,
    address: SocketAddr,
    socket: PathBuf,
}

impl Served {
    fn start(authority: &Authority, name: &str, global: &str, options: &str) -> Self {
        let (listening, address) = listener();
        let socket = authority.folder.0.join(name);
        let config = format!(
            "global\n stats socket {} level admin\n{global}\n{DEFAULTS} mode http\n\
             frontend f\n bind {} ssl {options}\n{PAGE}",
            socket.display(),
            fd(&listening),
        );
        Self { _program: Manylane::start_ready(&config), address, socket }
    }

    /// Checks that a client is served; returns true if it resumed the session of that file.
    fn get(&self, arguments: &[&str]) -> bool {
        let said = get(self.address, arguments);
        assert!(said.contains("\r\n\r\nhello"), "{said}");
        said.contains("\nReused, ")
    }
}

/// Ticket keys in base64, of 48 or 80 bytes, each consisting of one letter.
fn keys(letters: &[char], short: bool) -> String {
    let one = |letter: &char| match short {
        true => letter.to_string().repeat(64) + "\n",
        false => letter.to_string().repeat(107) + "=\n",
    };
    letters.iter().map(one).collect()
}

#[test]
fn processes_with_the_same_keys_resume_each_others_sessions() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let shown = authority.bundle("client.pem", &["client"]).display().to_string();
    let session = authority.folder.0.join("session").display().to_string();
    for (short, version, verify) in [
        (true, "-tls1_2", false),
        (false, "-tls1_3", false),
        (false, "-tls1_2", true),
        (true, "-tls1_3", true),
    ] {
        let file = |name: &str, letters: &[char]| authority.folder.file(name, &keys(letters, short));
        let (one, two) = (file("one", &['A', 'E', 'I']), file("two", &['Q', 'E', 'M', 'U', 'E', 'I']));
        let other = file("other", &['M', 'Q', 'U']);
        let start = |name: &str, keys: &Path, verify: bool| {
            let mut options = format!("crt {} tls-ticket-keys {}", certificate.display(), keys.display());
            if verify {
                options += &format!(" verify required ca-file {}", authority.file().display());
            }
            Served::start(&authority, name, "", &options)
        };
        let (first, second) = (start("first", &one, verify), start("second", &two, verify));
        let stranger = start("stranger", &other, verify);
        let begin = ["-cert", &shown, "-key", &shown, version, "-sess_out", &session];
        let go_on = ["-cert", &shown, "-key", &shown, version, "-sess_in", &session];
        assert!(!first.get(&begin));
        assert!(second.get(&go_on), "{version}");
        assert!(!stranger.get(&go_on), "{version}: it does not have the key");
        assert!(!second.get(&begin) && first.get(&go_on), "{version}: both ways");
        // A session without a client certificate is not valid where one is required.
        let unlike = start("unlike", &one, !verify);
        assert!(!unlike.get(&go_on), "{version}: other rules");
    }
}

#[test]
fn keys_of_tickets_are_changed_by_commands_as_in_haproxy() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let file = authority.folder.file("keys", &keys(&['A', 'E', 'I'], true));
    let session = authority.folder.0.join("session").display().to_string();
    let options = format!("crt {} tls-ticket-keys {}", certificate.display(), file.display());
    let served = Served::start(&authority, "control", "", &options);
    let peer = authority.folder.0.join("peer");
    let config = authority.folder.file(
        "peer.cfg",
        &format!(
            "global\n stats socket {} level admin\ndefaults\n mode http\n timeout client 5s\n \
             timeout server 5s\n timeout connect 5s\nfrontend f\n bind unix@{}.f ssl {options}\n",
            peer.display(),
            peer.display(),
        ),
    );
    let haproxy = Haproxy::start(&config);
    if haproxy.is_some() {
        common::watch::until(|| std::os::unix::net::UnixStream::connect(&peer).is_ok());
    }
    let name = file.display();
    for command in [
        "show tls-keys".to_owned(),
        "show tls-keys #7".into(),
        "show tls-keys none".into(),
        "set ssl tls-key".into(),
        "set ssl tls-key #0".into(),
        "set ssl tls-key none AAAA".into(),
        "set ssl tls-key #0 xxx".into(),
        "set ssl tls-key #0 AAAA".into(),
        format!("set ssl tls-key {name} {}", keys(&['M'], false).trim()),
        format!("set ssl tls-key {name} {}", keys(&['M'], true).trim()),
    ] {
        let own = ask(&served.socket, &command);
        if haproxy.is_some() {
            assert_eq!(own, ask(&peer, &command), "{command}");
        }
    }
    // Only the names of the keys; the last but one encrypts.
    let shown = ask(&served.socket, "show tls-keys *");
    let names = [
        "10410410410410410410410410410410",
        "20820820820820820820820820820820",
        "30c30c30c30c30c30c30c30c30c30c30",
    ];
    assert_eq!(
        shown,
        format!("# id name\n# 0 ({name})\n0.0 {}\n0.1 {}\n0.2 {}\n\n", names[0], names[1], names[2])
    );
    assert_eq!(ask(&served.socket, &format!("show tls-keys {name}")), shown);
    for (version, letters) in [("-tls1_2", ['Q', 'U']), ("-tls1_3", ['Y', 'c'])] {
        assert!(!served.get(&[version, "-sess_out", &session]));
        let add = |letter: char| {
            let said = ask(&served.socket, &format!("set ssl tls-key #0 <<\n{}\n", keys(&[letter], true)));
            assert_eq!(said, "TLS ticket key updated!\n\n");
        };
        assert!(served.get(&[version, "-sess_in", &session]));
        add(letters[0]);
        assert!(served.get(&[version, "-sess_in", &session]), "its key decrypts still");
        add(letters[1]);
        assert!(!served.get(&[version, "-sess_in", &session]), "its key is forgotten");
    }
}

#[test]
fn tickets_and_sessions_end_with_tune_ssl_lifetime() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let session = authority.folder.0.join("session").display().to_string();
    let crt = format!("crt {}", certificate.display());
    // Clients are told the lifetime of a ticket.
    for (lifetime, hint) in [("", 300), (" tune.ssl.lifetime 2m", 120), (" tune.ssl.lifetime 8d", 604_800)] {
        let served = Served::start(&authority, "control", lifetime, &crt);
        assert!(!served.get(&["-tls1_2", "-sess_out", &session]));
        let said = text(&openssl(&["sess_id", "-in", &session, "-noout", "-text"], "").stdout);
        assert!(said.contains(&format!("ticket lifetime hint: {hint} (seconds)")), "{said}");
    }
    // Older sessions are invalid. The wall clock counts, in whole seconds.
    for (options, version) in [("", "-tls1_2"), ("", "-tls1_3"), ("no-tls-tickets", "-tls1_2")] {
        let served =
            Served::start(&authority, "control", " tune.ssl.lifetime 1", &format!("{crt} {options}"));
        let mut resumed = true;
        let begun = std::time::Instant::now();
        served.get(&[version, "-sess_out", &session]);
        while resumed {
            assert!(begun.elapsed() < common::TIMEOUT, "{options} {version}: it never ends");
            resumed = served.get(&[version, "-sess_in", &session]);
        }
        assert!(begun.elapsed().as_secs_f64() > 1.0, "{options} {version}: it ended too early");
    }
}

#[test]
fn files_without_keys_of_tickets_are_refused() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let file = authority.folder.file("keys", &keys(&['A', 'E'], true));
    for (file, reported) in [
        (file, "expects at least 3 keys, a line each"),
        (
            certificate.clone(),
            "expects 48 or 80 bytes in base64 in each line, found 27 characters that are neither in line 1",
        ),
        (PathBuf::from("/none"), "'tls-ticket-keys' : cannot read '/none'"),
    ] {
        let config = format!(
            "{DEFAULTS}frontend f\n mode http\n bind :1 ssl crt {} tls-ticket-keys {}\n",
            certificate.display(),
            file.display()
        );
        let output = check(&config, &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(reported) && said.contains(":9]"), "{said}");
    }
}

/// With `tune.ssl.keylog`, fetches return what OpenSSL at the other end writes into its own file.
#[test]
fn secrets_are_logged_where_the_file_says_so_and_nowhere_else() {
    const LABELS: [&str; 5] = [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
        "EXPORTER_SECRET",
    ];
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let log = authority.folder.0.join("keylog");
    let reported = |side: &str| {
        let one = |label: &&str| {
            let name = label.to_lowercase();
            format!("{label} %[ssl_{side}_client_random,hex] %[ssl_{side}_{name}]|")
        };
        let master = format!("CLIENT_RANDOM %[ssl_{side}_client_random,hex] %[ssl_{side}_session_key,hex]|");
        LABELS.iter().map(one).collect::<String>() + &master
    };
    for keeps in [true, false] {
        let (outer, address) = listener();
        let (clear, plain) = listener();
        let config = format!(
            "global\n tune.ssl.keylog {}\n{DEFAULTS} mode http\n\
             frontend f\n bind {} ssl crt {}\n \
             http-request return status 200 content-type text/plain lf-string \"{}\"\n\
             frontend g\n bind {}\n http-response set-header x-back \"{}\"\n default_backend b\n\
             backend b\n server s {address} ssl verify none\n",
            if keeps { "on" } else { "off" },
            fd(&outer),
            certificate.display(),
            reported("fc"),
            fd(&clear),
            reported("bc"),
        );
        let _program = Manylane::start_ready(&config);
        for version in ["-tls1_3", "-tls1_2"] {
            let _ = std::fs::remove_file(&log);
            let said = get(address, &[version, "-keylogfile", log.to_str().unwrap()]).to_lowercase();
            let known = std::fs::read_to_string(&log).unwrap().to_lowercase();
            let known: Vec<_> = known.lines().filter(|line| !line.starts_with('#')).collect();
            let expected = if version == "-tls1_3" { LABELS.len() } else { 1 };
            assert_eq!(known.len(), expected, "{version}: {known:?}");
            for line in known {
                assert_eq!(said.contains(&format!("{line}|")), keeps, "{version}: {line} in {said}");
            }
        }
        // Both ends of one connection.
        let mut client = common::connect(plain);
        std::io::Write::write_all(&mut client, b"GET / HTTP/1.0\r\n\r\n").unwrap();
        let answer = common::read_all(&mut client);
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let back = head.lines().find_map(|line| line.strip_prefix("x-back: ")).unwrap();
        assert_eq!(back.trim(), body.trim());
        assert_eq!(body.split(['|', ' ']).any(|word| word.len() >= 64), keeps, "{body}");
    }
}

/// Both programs tell of the session that both ends have, with TLS 1.2.
#[test]
fn sessions_of_tls_1_2_have_identifiers() {
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    let config = |_: &common::watch::Syslog, socket: &Path| {
        let shown = socket.display();
        let global = format!("global\n stats socket {shown}\n");
        let crt = format!("ssl crt {} no-tls-tickets", certificate.display());
        format!(
            "{} mode http\n http-reuse never\nfrontend f\n bind unix@{shown}.f {crt}\n \
             http-response set-header x-f \"<%[ssl_fc_session_id,hex]>\"\n \
             http-response set-header x-b \"<%[ssl_bc_session_id,hex]>\"\n default_backend b\n\
             backend b\n server s unix@{shown}.g ssl verify none ssl-max-ver TLSv1.2\n\
             frontend g\n bind unix@{shown}.g {crt}\n \
             http-request return status 200 hdr x-g \"<%[ssl_fc_session_id,hex]>\"\n",
            DEFAULTS.replacen("global\n", &global, 1).replace("nbthread 2", "nbthread 1"),
        )
    };
    let session = authority.folder.0.join("session");
    let file = session.to_str().unwrap();
    let play = |played: Played| {
        let front = format!("{}.f", played.socket.display());
        until(|| UnixStream::connect(&front).is_ok());
        let visit = |more: &[&str]| {
            let arguments = [&["s_client", "-unix", &front, "-ign_eof"][..], more].concat();
            let reported = text(&openssl(&arguments, "GET / HTTP/1.0\r\n\r\n").stdout);
            ["x-f: ", "x-b: ", "x-g: ", "    Session-ID: "].map(|name| {
                let line = reported.lines().find_map(|line| line.strip_prefix(name));
                line.unwrap_or_else(|| panic!("no {name}: {reported}")).trim_matches(['<', '>']).to_owned()
            })
        };
        let first = visit(&["-tls1_2", "-sess_out", file]);
        let second = visit(&["-tls1_2", "-sess_in", file]);
        for [own, to_server, at_server, shown] in [&first, &second] {
            assert_eq!((own.len(), own, to_server.len(), to_server), (64, shown, 64, at_server));
        }
        assert_eq!(first, second, "the sessions are resumed");
        visit(&["-tls1_3"])[0].clone()
    };
    // With TLS 1.3, HAProxy tells what only its own store knows.
    assert_eq!(both(config, play).0, "");
}
