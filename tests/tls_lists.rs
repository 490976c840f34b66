//! Lists of certificates: options of their lines, and the same beside HAProxy.

use crate::common;
use crate::tls::{Authority, openssl, text};

use common::watch::{Played, Syslog, both, until};
use common::{DEFAULTS, Manylane};
use rcgen::PKCS_RSA_SHA256;
use std::io::Write;
use std::os::unix::net::UnixStream;
use std::path::Path;

const PAGE: &str = " http-request return status 200 content-type text/plain lf-string \
     \"%[ssl_fc_protocol] %[ssl_fc_cipher] %[ssl_fc_alpn] %[ssl_fc_sni] %[ssl_c_used]\\n\"\n";

/// A connection of `openssl s_client` to the socket of a frontend, and what both sides have agreed on.
fn agreed(socket: &Path, name: &str, more: &[&str]) -> String {
    let path = format!("{}.f", socket.display());
    until(|| UnixStream::connect(&path).is_ok()); // the command socket is bound before it
    let arguments = ["s_client", "-unix", &path, "-servername", name, "-ign_eof"];
    let get = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let tries = || {
        let output = openssl(&[&arguments[..], more].concat(), get);
        format!("{}{}", text(&output.stdout), text(&output.stderr))
    };
    // A client that writes after the end reports that alone, although the alert waits for it.
    const BROKEN_PIPE: &str = "write:errno=32";
    let mut reported = tries();
    for _ in 0..20 {
        if reported.contains(BROKEN_PIPE) {
            reported = tries();
        }
    }
    let of_handshake = |line: &&str| {
        let begins = ["subject=", "ALPN protocol", "No ALPN", "Server Temp Key", "TLSv1"];
        begins.iter().any(|begin| line.starts_with(begin))
            || line.contains("CA names")
            || line.ends_with("Requested Signature Algorithms: ECDSA+SHA384")
            || line.contains(" Cipher is ")
    };
    // Of an alert its name is enough.
    let alerts =
        reported.lines().filter(|line| line.contains("alert")).filter_map(|line| line.split(':').nth(5));
    let lines = reported.lines().filter(of_handshake).map(str::trim).chain(alerts);
    lines.collect::<Vec<_>>().join("; ")
}

#[test]
fn the_options_of_a_line_hold_as_in_haproxy() {
    let authority = Authority::new();
    let a = authority.bundle("a.pem", &["a.example"]);
    authority.bundle_of("r.pem", &["r.example"], &PKCS_RSA_SHA256);
    let client = authority.bundle("client.pem", &["client"]);
    let list = authority.folder.file(
        "list",
        "a.pem [alpn foo] *\n\
         a.pem a.example\n\
         a.pem [no-alpn] none.example\n\
         a.pem [alpn foo] foo.example\n\
         a.pem [alpn foo no-alpn ssl-max-ver TLSv1.2] both.example\n\
         a.pem [ssl-min-ver TLSv1.3] new.example\n\
         a.pem [ciphers ECDHE-ECDSA-CHACHA20-POLY1305 ciphersuites TLS_AES_128_GCM_SHA256] ciphers.example\n\
         a.pem [curves P-384] curves.example\n\
         a.pem [ecdhe P-384] ecdhe.example\n\
         a.pem [verify required ca-file ca.pem] required.example\n\
         a.pem [verify optional ca-file ca.pem no-ca-names client-sigalgs ECDSA+SHA384] \
         *.w.example !x.w.example\n\
         a.pem [verify optional ca-verify-file ca.pem] unlisted.example\n\
         r.pem [sigalgs RSA-PSS+SHA384 alpn bar,http/1.1] r.example\n",
    );
    let folder = authority.folder.0.display();
    let config = |_: &Syslog, socket: &Path| {
        let shown = socket.display();
        format!(
            "global\n stats socket {shown} level admin\n crt-base {folder}\n ca-base {folder}\n\
             {DEFAULTS} mode http\nfrontend f\n bind unix@{shown}.f ssl crt-list {}\n{PAGE}",
            list.display()
        )
    };
    let protocols = ["-alpn", "h2,http/1.1,foo,bar"];
    let (a, client) = (a.to_str().unwrap(), client.to_str().unwrap());
    let shows = ["-cert", client, "-key", client, "-alpn", "foo,http/1.1"];
    let (list, shown) = (list.display().to_string(), authority.file().display().to_string());
    let commands = [
        format!("show ssl crt-list -n {list}"),
        format!("add ssl crt-list {list} <<\n{a} [verify required ca-file {shown} no-alpn] late.example\n"),
        format!("show ssl crt-list {list}"),
        format!("show ssl ca-file {shown}"),
        format!("del ssl ca-file {shown}"),
    ];
    let play = |played: Played| {
        let mut all = Vec::new();
        let mut see = |what: &str, observed: String| all.push(format!("{what}: {observed}"));
        for name in [
            "a", "none", "foo", "both", "new", "ciphers", "curves", "ecdhe", "required", "y.w", "x.w",
            "unlisted", "r", "other",
        ] {
            let name = format!("{name}.example");
            for version in ["-tls1_2", "-tls1_3"] {
                let observed = agreed(&played.socket, &name, &[&protocols[..], &[version]].concat());
                see(&format!("{name} {version}"), observed);
                let observed = agreed(&played.socket, &name, &[&shows[..], &[version]].concat());
                see(&format!("{name} {version} with a certificate"), observed);
            }
        }
        for command in &commands {
            see(command.lines().next().unwrap(), played.ask(command));
        }
        for more in [&protocols[..], &shows] {
            see("late.example", agreed(&played.socket, "late.example", more));
        }
        all
    };
    let (ours, theirs) = both(config, play);
    let find = |what: &str| ours.iter().find(|observed| observed.starts_with(what)).unwrap();
    assert!(find("both.example -tls1_3: ").contains("alert protocol version"));
    assert!(find("required.example -tls1_3: ").contains("alert certificate required"));
    assert!(find("required.example -tls1_3 with").contains("TLSv1.3 TLS_AES_256_GCM_SHA384 http/1.1"));
    assert!(find("y.w.example -tls1_3: ").contains("ECDSA+SHA384"));
    assert!(find("other.example -tls1_3: ").contains("ALPN protocol: foo"));
    assert!(find("show ssl crt-list -n").contains("a.pem:5 [no-alpn ssl-max-ver TLSv1.2] both.example\n"));
    let Some(theirs) = theirs else { return };
    // rustls has one alert for clients without a certificate in both versions, OpenSSL another one in TLS
    // 1.2. HAProxy writes a zero byte behind a list of protocols, and leaves 'ca-verify-file' out.
    let trimmed = |observed: &str| {
        let observed = observed.replace('\0', "");
        let observed = observed.replace("sslv3 alert handshake failure", "tlsv13 alert certificate required");
        observed
            .replace(&format!(" ca-verify-file {shown}"), "")
            .replace("...\n", ".\n")
            .replace("..\n", ".\n")
    };
    let differ = ours.iter().zip(&theirs).filter(|(ours, theirs)| trimmed(ours) != trimmed(theirs));
    let wrong = differ.map(|(ours, theirs)| format!("-- HAProxy\n{theirs}\n-- Manylane\n{ours}\n"));
    let wrong = wrong.collect::<String>();
    assert!(wrong.is_empty(), "{wrong}");
}

/// Certificates of a frontend: all its listeners with TLS have them, behind their own.
#[test]
fn certificates_of_a_frontend_and_names_are_those_of_haproxy() {
    let authority = Authority::new();
    for (file, names) in [
        ("a.pem", &["a.example", "A2.example"][..]),
        ("b.pem", &["b.example", "*.b.example"]),
        ("c.pem", &["c.example"]),
    ] {
        authority.bundle(file, names);
    }
    authority.bundle_of("r.pem", &["a.example", "*.r.example"], &PKCS_RSA_SHA256);
    let list =
        authority.folder.file("list", "b.pem *.w.example !x.w.example !y.w.example z.example\nr.pem\n");
    let folder = authority.folder.0.display().to_string();
    let config = |_: &Syslog, socket: &Path| {
        let shown = socket.display();
        format!(
            "global\n stats socket {shown} level admin\n crt-base {folder}\n ca-base {folder}\n\
             crt-store s\n load crt b.pem alias one\n\
             defaults\n timeout client 30s\n mode http\n\
             frontend f\n bind unix@{shown}.f ssl\n bind unix@{shown}.g ssl crt-list {list}\n \
             bind unix@{shown}.h\n ssl-f-use crt a.pem ssl-max-ver TLSv1.2\n ssl-f-use crt @s/one no-alpn\n \
             ssl-f-use crt c.pem ssl-min-ver TLSv1.3\n{PAGE}\
             frontend g\n bind unix@{shown}.i ssl crt r.pem crt {folder}/c.pem strict-sni\n{PAGE}\
             frontend h\n bind unix@{shown}.j\n{PAGE}",
            list = list.display()
        )
    };
    let c = format!("{folder}/c.pem");
    let commands = [
        "show ssl crt-list".to_owned(),
        "show ssl crt-list -n @f".into(),
        "show ssl sni".into(),
        "show ssl sni -f g".into(),
        "show ssl sni -f h".into(),
        "show ssl sni -A".into(),
        "show ssl sni -A -t 9000d -f f".into(),
        "show ssl sni -f none".into(),
        "show ssl sni -f".into(),
        "show ssl sni -t".into(),
        "show ssl sni -t x".into(),
        "show ssl sni -t 5x".into(),
        "show ssl sni -t 2d -A".into(),
        "show ssl sni -x".into(),
        format!("add ssl crt-list @f <<\n{c} [no-alpn] d.example\n"),
        "show ssl crt-list -n @f".into(),
        "show ssl sni -f f".into(),
    ];
    let play = |played: Played| {
        let mut all = Vec::new();
        for name in ["a.example", "x.b.example", "c.example", "none.example"] {
            let observed = agreed(&played.socket, name, &["-alpn", "h2,http/1.1"]);
            all.push(format!("{name}: {observed}"));
        }
        let base = played.socket.parent().unwrap().display().to_string();
        let name = played.socket.file_name().unwrap().to_str().unwrap().to_owned();
        for command in &commands {
            // The file of the configuration has a name of its own.
            let answer = played.ask(command).replace(&base, "").replace(&name, "");
            let lines = answer.lines().map(|line| match (line.find('/'), line.find(".cfg:")) {
                (Some(slash), Some(end)) if slash < end => format!("{}{}", &line[..=slash], &line[end..]),
                _ => line.to_owned(),
            });
            all.push(format!("{command}: {}", lines.collect::<Vec<_>>().join("\n")));
        }
        for name in ["c.example", "d.example"] {
            all.push(format!("{name}: {}", agreed(&played.socket, name, &["-alpn", "h2,http/1.1"])));
        }
        all
    };
    let (ours, theirs) = both(config, play);
    assert!(
        ours[0].contains("Cipher is ECDHE-ECDSA") && ours[0].contains("ALPN protocol: h2"),
        "{}",
        ours[0]
    );
    assert!(ours[1].contains("No ALPN negotiated"), "{}", ours[1]);
    assert!(ours[3].contains("subject=CN = c.example"), "the last one is the default: {}", ours[3]);
    let Some(theirs) = theirs else { return };
    // HAProxy writes a zero byte behind 'no-alpn', and a dot for each listener and certificate.
    let trimmed = |observed: &str| {
        let mut observed = observed.replace('\0', "");
        while observed.contains("..\n") {
            observed = observed.replace("..\n", ".\n");
        }
        observed
    };
    let differ = ours.iter().zip(&theirs).filter(|(ours, theirs)| trimmed(ours) != trimmed(theirs));
    let wrong = differ.map(|(ours, theirs)| format!("-- HAProxy\n{theirs}\n-- Manylane\n{ours}\n"));
    let wrong = wrong.collect::<String>();
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn certificates_of_a_frontend_are_refused_with_their_line() {
    let authority = Authority::new();
    let a = authority.bundle("a.pem", &["a.example"]);
    let a = a.display();
    for (line, reported) in [
        ("alpn h2 x".to_owned(), "'ssl-f-use' expects 'crt <file>', found none"),
        (format!("crt {a} crt {a}"), "'ssl-f-use' has 'crt' twice"),
        (format!("crt {a} npn h2"), "'ssl-f-use' has the option 'npn', which is not supported"),
        (
            format!("crt {a} verify maybe"),
            "'ssl-f-use' has 'verify maybe', expected none, optional or required",
        ),
        (format!("crt {a} ciphers none"), "a.pem' : 'ciphers' : no cipher of 'none' is left"),
        ("crt /none.pem".into(), "'ssl-f-use' : cannot read '/none.pem'"),
    ] {
        let config = format!("{DEFAULTS}frontend f\n bind :1 ssl\n ssl-f-use {line}\n mode http\n");
        let output = common::check(&config, &[]);
        let said = text(&output.stderr);
        assert!(!output.status.success() && said.contains(reported), "{line}: {said}");
        assert!(said.contains(&format!(":{}:", config.lines().count() - 1)), "{line}: {said}");
    }
}

/// Two certificates of a store whose files are watched.
#[test]
fn watched_files_replace_certificates_when_they_are_complete() {
    let authority = Authority::new();
    let file = authority.bundle("a.pem", &["a.example"]);
    let other = authority.bundle("other.pem", &["other.example"]);
    let read =
        |name: &str| std::fs::read_to_string(authority.bundle(&format!("{name}.new"), &[name])).unwrap();
    let (second, third) = (read("b.example"), read("c.example"));
    let (log, lines) = common::watch::log_lines();
    let (listening, address) = common::listener();
    let config = format!(
        "global\n log {log} local0\n nbthread 2\n\
         crt-store s\n load crt {} alias a watch\n load crt {} watch\n\
         {DEFAULTS} mode http\nfrontend f\n bind {} ssl crt @s/a crt @s/{}\n{PAGE}",
        file.display(),
        other.display(),
        common::fd(&listening),
        other.display(),
    );
    let _program = common::Manylane::start_ready(&config);
    let shown = || {
        let to = address.to_string();
        text(&openssl(&["s_client", "-connect", &to, "-servername", "x"], "").stdout)
    };
    let next = || loop {
        let line = lines.recv_timeout(common::TIMEOUT).unwrap();
        if let Some((_, line)) = line.split_once("Certificate @s/") {
            return line.trim_end().to_owned();
        }
    };
    assert!(shown().contains("CN = a.example"));
    std::fs::rename(authority.folder.file("whole", &second), &file).unwrap();
    assert_eq!(next(), "a: its files have changed and are in use.");
    assert!(shown().contains("CN = b.example"));
    let half = third.len() / 2;
    std::fs::write(&file, &third[..half]).unwrap();
    let reported = next();
    assert!(reported.starts_with("a: its changed files are not used: 'crt' : '"), "{reported}");
    assert!(shown().contains("CN = b.example"));
    // A later look at both finds nothing new of the first.
    std::fs::rename(authority.folder.file("whole", &read("other2.example")), &other).unwrap();
    assert_eq!(next(), format!("{}: its files have changed and are in use.", other.display()));
    std::fs::OpenOptions::new()
        .append(true)
        .open(&file)
        .unwrap()
        .write_all(&third.as_bytes()[half..])
        .unwrap();
    assert_eq!(next(), "a: its files have changed and are in use.");
    assert!(shown().contains("CN = c.example"));
}

#[test]
fn a_certificate_of_acme_is_not_watched() {
    let config = format!("crt-store s\n load crt a watch acme x domains y\n{DEFAULTS}listen l\n bind :1\n");
    let output = common::check(&config, &[]);
    let said = text(&output.stderr);
    assert!(!output.status.success() && said.contains("'watch' and 'acme' exclude each other"), "{said}");
}

/// The parts of a file with a certificate and its key.
fn parts(bundle: &Path) -> [String; 2] {
    let whole = std::fs::read_to_string(bundle).unwrap();
    let (certificate, key) = whole.split_at(whole.find("-----BEGIN PRIVATE KEY").unwrap());
    [certificate.to_owned(), key.to_owned()]
}

#[test]
fn a_line_names_the_key_of_its_certificate_as_in_haproxy() {
    let authority = Authority::new();
    let folder = authority.folder.0.display().to_string();
    for name in ["a", "b"] {
        let file = authority.bundle(&format!("{name}.pem"), &[&format!("{name}.example")]);
        let [certificate, key] = parts(&file);
        authority.folder.file(&format!("{name}.crt"), &certificate);
        authority.folder.file(&format!("{name}.secret"), &key);
    }
    let list = authority.folder.file(
        "list",
        &format!(
            "a.crt [key {folder}/a.secret issuer {folder}/ca.pem alpn foo] a.example\n\
             b.crt [crt {folder}/b.crt key {folder}/b.secret] b.example\n\
             a.crt [issuer {folder}/ca.pem key {folder}/a.secret] *.w.example\n"
        ),
    );
    let config = |_: &Syslog, socket: &Path| {
        let shown = socket.display();
        format!(
            "global\n stats socket {shown} level admin\n crt-base {folder}\n key-base /nowhere\n\
             {DEFAULTS} mode http\nfrontend f\n bind unix@{shown}.f ssl crt-list {}\n{PAGE}",
            list.display()
        )
    };
    let show = format!("show ssl crt-list -n {}", list.display());
    let add = |line: &str| format!("add ssl crt-list {} <<\n{folder}/{line} late.example\n", list.display());
    let play = |played: Played| {
        let foo = |name: &str| agreed(&played.socket, name, &["-alpn", "foo", "-tls1_3"]);
        let none = |name: &str| agreed(&played.socket, name, &["-tls1_3"]);
        let mut all = vec![foo("a.example"), none("b.example"), none("x.w.example"), played.ask(&show)];
        let same = add(&format!("b.crt [key {folder}/b.secret alpn foo]"));
        all.extend([played.ask(&same), foo("late.example")]);
        (all, played.ask(&add(&format!("b.crt [key {folder}/a.secret]"))))
    };
    let ((ours, refused), theirs) = both(config, play);
    assert!(ours[0].contains("CN = a.example") && ours[0].contains("ALPN protocol: foo"), "{ours:?}");
    assert!(ours[1].contains("CN = b.example"), "{ours:?}");
    assert!(ours[2].contains("CN = a.example") && ours[2].contains("No ALPN"), "{ours:?}");
    assert!(ours[5].contains("CN = b.example") && ours[5].contains("ALPN protocol: foo"), "{ours:?}");
    assert!(refused.contains("names other files for '"), "{refused}");
    if let Some((theirs, refused)) = theirs {
        // HAProxy shows a zero byte behind 'alpn', and brackets where no option is left to show.
        let theirs: Vec<_> = theirs.iter().map(|said| said.replace('\0', "").replace(" []", "")).collect();
        assert_eq!(ours, theirs);
        assert!(refused.contains("incompatible parameters"), "{refused}");
    }
}

/// What commands add to a folder has its certificate alone, as in HAProxy.
#[test]
fn a_line_of_a_folder_has_no_options() {
    let authority = Authority::new();
    let folder = authority.folder.0.join("served");
    std::fs::create_dir(&folder).unwrap();
    std::fs::rename(authority.bundle("a.pem", &["a.example"]), folder.join("a.pem")).unwrap();
    let socket = authority.folder.0.join("control");
    let (listening, _) = common::listener();
    let _program = Manylane::start_ready(&format!(
        "global\n stats socket {} level admin\n{DEFAULTS} mode http\nfrontend f\n bind {} ssl crt {}\n{PAGE}",
        socket.display(),
        common::fd(&listening),
        folder.display()
    ));
    let folder = folder.display();
    for options in ["[alpn foo]", "[key x]", &format!("[crt {folder}/a.pem]"), "b.example"] {
        let line = format!("add ssl crt-list {folder} <<\n{folder}/a.pem {options}\n");
        let said = common::watch::ask(&socket, &line);
        assert!(said.contains("a folder expects no options and no names"), "{options}: {said}");
    }
}

#[test]
fn files_of_a_line_that_do_not_fit_are_refused() {
    let authority = Authority::new();
    let folder = authority.folder.0.display().to_string();
    let [certificate, key] = parts(&authority.bundle("a.pem", &["a.example"]));
    authority.folder.file("a.crt", &certificate);
    authority.folder.file("a.secret", &key);
    let [_, other] = parts(&authority.bundle("b.pem", &["b.example"]));
    authority.folder.file("b.secret", &other);
    for (lines, expected) in [
        (
            "a.crt [key FOLDER/a.secret]\na.crt [key FOLDER/b.secret]\n",
            "line 2 of 'FOLDER/list' names other files for 'FOLDER/a.crt' than it was read with",
        ),
        ("a.pem\na.pem [issuer FOLDER/ca.pem]\n", "line 2 of 'FOLDER/list' names other files for"),
        (
            "a.crt [crt FOLDER/a.pem key FOLDER/a.secret]\n",
            "line 1 of 'FOLDER/list' has 'crt FOLDER/a.pem', expected the file that the line begins with",
        ),
        ("a.crt [key FOLDER/none]\n", "FOLDER/none"),
        ("a.crt [key FOLDER/b.secret]\n", "FOLDER/a.crt"),
        ("a.pem [sctl FOLDER/ca.pem]\n", "timestamps of certificates (SCT) are not sent apart from them"),
        ("a.pem [acme x]\n", "has the option 'acme', which is not supported: set it on a 'load' line"),
    ] {
        let list = authority.folder.file("list", &lines.replace("FOLDER", &folder));
        let config = format!(
            "global\n crt-base {folder}\n{DEFAULTS} mode http\nfrontend f\n bind :1 ssl crt-list {}\n{PAGE}",
            list.display()
        );
        let output = common::check(&config, &[]);
        let (said, expected) = (text(&output.stderr), expected.replace("FOLDER", &folder));
        assert!(!output.status.success() && said.contains(&expected), "{lines}: {said}");
    }
}
