//! Files that certificates are made of: bundles, names of files beside them, and chains that are completed or
//! shortened.

use crate::common;
use crate::tls::{Authority, openssl, text};

use common::DEFAULTS;
use common::watch::{Played, Syslog, both};
use rcgen::{PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use std::path::Path;

/// A configuration whose frontends have these options behind `ssl`, at `<socket>.<index>`.
fn config(socket: &Path, global: &str, fronts: &[String]) -> String {
    let socket = socket.display();
    let mut text = format!("global\n stats socket {socket} level admin\n{global}\n{DEFAULTS} mode http\n");
    for (index, options) in fronts.iter().enumerate() {
        text += &format!("frontend f{index}\n bind unix@{socket}.{index} ssl {options}\n");
    }
    text
}

/// The certificates that a client gets, each with its name and its issuer's, and `more` of s_client's lines.
fn shown(played: &Played, front: usize, arguments: &[&str], more: &str) -> Vec<String> {
    let to = format!("{}.{front}", played.socket.display());
    let all = [&["s_client", "-showcerts", "-unix", &to][..], arguments].concat();
    let said = text(&openssl(&all, "").stdout);
    let lines = said.lines().map(str::trim);
    let kept = lines.filter(|line| line.contains(" s:") || (!more.is_empty() && line.starts_with(more)));
    kept.map(str::to_owned).collect()
}

#[test]
fn bundles_are_taken_for_names_without_a_file() {
    let authority = Authority::new();
    authority.bundle_of("x.pem.rsa", &["a.example"], &PKCS_RSA_SHA256);
    authority.bundle_of("x.pem.ecdsa", &["a.example"], &PKCS_ECDSA_P256_SHA256);
    // A file goes before a bundle of its name.
    authority.bundle_of("z.pem", &["z.example"], &PKCS_RSA_SHA256);
    authority.bundle_of("z.pem.ecdsa", &["other.example"], &PKCS_ECDSA_P256_SHA256);
    let folder = authority.folder.0.display().to_string();
    authority.folder.file("list", &format!("{folder}/x.pem one.example\n"));
    let of = |_: &Syslog, socket: &Path| {
        let fronts = [
            format!("crt {folder}/x.pem"),
            format!("default-crt {folder}/x.pem crt {folder}/z.pem"),
            format!("crt-list {folder}/list"),
            format!("\n ssl-f-use crt {folder}/x.pem"),
            format!("crt {folder}/z.pem"),
        ];
        config(socket, "", &fronts)
    };
    let play = |played: Played| {
        let mut all = vec![played.ask("show ssl cert")];
        for front in 0..5 {
            for kind in ["ECDSA+SHA256", "RSA-PSS+SHA256"] {
                let name = if front == 2 { "one.example" } else { "a.example" };
                let arguments = ["-sigalgs", kind, "-servername", name];
                all.extend(shown(&played, front, &arguments, "Peer signature type"));
            }
        }
        all
    };
    let (ours, theirs) = both(of, play);
    assert!(ours[0].contains("/x.pem.ecdsa\n") && ours[0].contains("/x.pem.rsa\n"), "{}", ours[0]);
    let kinds: Vec<_> = ours.iter().filter(|line| line.starts_with("Peer")).map(String::as_str).collect();
    let both_kinds = ["Peer signature type: ECDSA", "Peer signature type: RSA-PSS"];
    // The last client cannot check what there is.
    assert_eq!(kinds, [&both_kinds.repeat(4)[..], &both_kinds[1..]].concat());
    assert_eq!(theirs.unwrap_or_else(|| ours.clone()), ours);

    // A bundle of servers' lines is none, as in HAProxy, and what is in no file is reported.
    for line in ["server s 127.0.0.1:1 ssl verify none crt {}/x.pem", "bind :0 ssl crt {}/y.pem"] {
        let line = line.replace("{}", &folder);
        let output = common::check(&format!("{DEFAULTS}listen l\n mode tcp\n {line}\n"), &[]);
        assert!(text(&output.stderr).contains("cannot read"), "{}", text(&output.stderr));
    }
    // Keys of DSA are left out if there are others.
    authority.folder.file("x.pem.dsa", "");
    let line = format!("{DEFAULTS}frontend f\n mode tcp\n bind :0 ssl crt {folder}/x.pem\n");
    let output = common::check(&line, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("x.pem.dsa' is not used"), "{}", text(&output.stderr));
}
