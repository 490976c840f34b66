//! Files that certificates are made of: bundles, names of files beside them, and chains that are completed or
//! shortened.

use crate::common;
use crate::tls::{Authority, curl, openssl, text};

use common::watch::{Played, Syslog, both};
use common::{DEFAULTS, Manylane, fd, listener};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256,
};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
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
    for line in ["server s 127.0.0.1:1 ssl verify none crt {}/x.pem", "bind 127.0.0.1:1 ssl crt {}/y.pem"] {
        let line = line.replace("{}", &folder);
        let output = common::check(&format!("{DEFAULTS}listen l\n mode tcp\n {line}\n"), &[]);
        assert!(text(&output.stderr).contains("cannot read"), "{}", text(&output.stderr));
    }
    // Keys of DSA are left out if there are others.
    authority.folder.file("x.pem.dsa", "");
    let line = format!("{DEFAULTS}frontend f\n mode tcp\n bind 127.0.0.1:1 ssl crt {folder}/x.pem\n");
    let output = common::check(&line, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("x.pem.dsa' is not used"), "{}", text(&output.stderr));
}

/// What a set of global lines makes of chains: the certificates that clients of each frontend get.
type Chains = Vec<(&'static str, Vec<Vec<String>>)>;

#[test]
fn chains_are_completed_and_end_before_self_issued_authorities() {
    let authority = Authority::new();
    let folder = &authority.folder;
    let root = authority.own.pem();
    let made = |name: &str, is_ca: bool| {
        let mut params = CertificateParams::new(vec![format!("{name}.example")]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        params.use_authority_key_identifier_extension = true;
        if is_ca {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        (params, KeyPair::generate().unwrap())
    };
    let (params, key) = made("intermediate", true);
    let intermediate = params.signed_by(&key, &authority.own).unwrap().pem();
    let issuer = Issuer::from_params(&params, &key);
    let (params, key) = made("leaf", false);
    let (leaf, key) = (params.signed_by(&key, &issuer).unwrap().pem(), key.serialize_pem());
    folder.file("bare.pem", &format!("{leaf}{key}"));
    folder.file("full.pem", &format!("{leaf}{intermediate}{root}{key}"));
    let (params, key) = made("direct", false);
    let direct = params.signed_by(&key, &authority.own).unwrap().pem();
    folder.file("direct.pem", &format!("{direct}{root}{}", key.serialize_pem()));
    std::fs::create_dir(folder.0.join("issuers")).unwrap();
    folder.file("issuers/chain.pem", &format!("{intermediate}{root}"));
    let path = folder.0.display().to_string();
    let issuers = format!(" issuers-chain-path {path}/issuers\n");
    let skip = " ssl-skip-self-issued-ca\n";
    let run = |kind: &'static str, global: &str| {
        let fronts = ["bare", "full", "direct"].map(|name| format!("crt {path}/{name}.pem"));
        let play = |played: Played| -> Vec<Vec<String>> {
            let mut all: Vec<_> = (0..3).map(|front| shown(&played, front, &[], "")).collect();
            let said = played.ask(&format!("show ssl cert {path}/bare.pem"));
            all.push(
                said.lines().filter(|line| line.starts_with("Chain Subject")).map(str::to_owned).collect(),
            );
            all
        };
        let (ours, theirs) = both(|_, socket| config(socket, global, &fronts), play);
        ((kind, ours.clone()), (kind, theirs.unwrap_or(ours)))
    };
    let all = [
        run("none", ""),
        run("skip", skip),
        run("issuers", &issuers),
        run("both", &(issuers.clone() + skip)),
    ];
    let (ours, theirs): (Chains, Chains) = all.into_iter().unzip();
    let counts: Vec<Vec<usize>> =
        ours.iter().map(|(_, chains)| chains.iter().map(Vec::len).collect()).collect();
    assert_eq!(counts, [[1, 3, 2, 0], [1, 2, 1, 0], [3, 3, 2, 2], [2, 2, 1, 2]]);
    assert_eq!(ours, theirs);

    let checked = |issuers: &str| {
        let lines = format!(
            "global\n issuers-chain-path {issuers}\n{DEFAULTS}frontend f\n mode tcp\n bind 127.0.0.1:1 ssl \
                            crt {path}/bare.pem\n"
        );
        let output = common::check(&lines, &[]);
        (output.status.success(), text(&output.stderr))
    };
    let (good, said) = checked("/none");
    assert!(
        !good && said.contains("'issuers-chain-path' : expected a folder, found '/none', which is not one"),
        "{said}"
    );
    folder.file("issuers/none.pem", "");
    folder.file("issuers/twice.pem", &intermediate);
    let (good, said) = checked(&format!("{path}/issuers"));
    assert!(good && said.contains("none.pem' is not used: it has no certificate"), "{said}");
    assert!(said.contains("twice.pem' is not used: another file has the chain of this issuer"), "{said}");
}

#[test]
fn files_beside_certificates_have_names_without_crt() {
    let authority = Authority::new();
    let folder = &authority.folder;
    let whole = std::fs::read_to_string(authority.bundle("whole", &["a.example"])).unwrap();
    let end = "-----END CERTIFICATE-----\n";
    let (certificate, key) = whole.split_once(end).unwrap();
    folder.file("a.crt", &format!("{certificate}{end}"));
    folder.file("a.key", key);
    let path = folder.0.display();
    let option = " ssl-load-extra-del-ext\n";
    let config = |_: &Syslog, socket: &Path| config(socket, option, &[format!("crt {path}/a.crt")]);
    let play = |played: Played| {
        let said = [
            played.ask(&format!("set ssl cert {path}/a.key <<\n{key}")),
            played.ask(&format!("commit ssl cert {path}/a.crt")),
            played.ask(&format!("show ssl cert {path}/a.crt")),
        ];
        let lines = said.iter().flat_map(|answer| answer.lines());
        let kept =
            lines.filter(|line| !line.is_empty() && !line.contains("filename") || line.contains("Key"));
        kept.filter(|line| !line.starts_with("Subject") && !line.starts_with("Issuer"))
            .map(str::to_owned)
            .collect()
    };
    let (ours, theirs): (Vec<String>, Option<Vec<String>>) = both(config, play);
    assert_eq!(ours[0], format!("Transaction created for certificate {path}/a.crt!"));
    assert!(ours.contains(&"Success!".to_owned()) && ours.contains(&format!("Key filename: {path}/a.key")));
    assert_eq!(theirs.unwrap_or_else(|| ours.clone()), ours);
    for (option, good) in [(option, true), ("", false)] {
        let lines = format!(
            "global\n{option}{DEFAULTS}frontend f\n mode tcp\n bind 127.0.0.1:1 ssl crt {path}/a.crt\n"
        );
        assert_eq!(common::check(&lines, &[]).status.success(), good, "{option}");
    }
}

#[test]
fn a_key_for_root_alone_is_read_before_rights_are_given_up() {
    if !nix::unistd::Uid::effective().is_root() {
        return println!("NOT SHOWN HERE: only root gives up rights");
    }
    let authority = Authority::new();
    let certificate = authority.bundle("a.pem", &["a.example"]);
    std::fs::set_permissions(&certificate, Permissions::from_mode(0o600)).unwrap();
    let (socket, address) = listener();
    let program = Manylane::start_ready(&format!(
        "global\n uid 65534\n gid 65534\n{DEFAULTS} mode http\nfrontend f\n bind {} ssl crt {}\n \
         http-request return status 200 content-type text/plain string hello\n",
        fd(&socket),
        certificate.display()
    ));
    let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).unwrap();
    assert!(status.contains("\nUid:\t65534\t65534\t65534\t65534\n"), "{status}");
    let url = format!("https://a.example:{}/", address.port());
    let output = curl(&authority, address, "a.example", &[&url]);
    assert!(text(&output.stdout).starts_with("hello|200"), "{}", text(&output.stderr));
}

#[test]
fn a_folder_that_cannot_be_read_is_reported() {
    let authority = Authority::new();
    authority.bundle("a.pem", &["a.example"]);
    let folder = &authority.folder;
    let hidden = folder.0.join("hidden");
    std::fs::create_dir(&hidden).unwrap();
    std::fs::set_permissions(&hidden, Permissions::from_mode(0o000)).unwrap();
    let line = format!("bind 127.0.0.1:1 ssl crt {}", hidden.display());
    let file = folder.file("test.cfg", &format!("{DEFAULTS}frontend f\n mode tcp\n {line}\n"));
    let mut program = common::command();
    program.arg("-c").arg("-f").arg(file);
    if nix::unistd::Uid::effective().is_root() {
        program.uid(65534).gid(65534);
    }
    let output = match program.output() {
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return println!("NOT SHOWN HERE: other users may not start the program");
        }
        output => output.unwrap(),
    };
    std::fs::set_permissions(&hidden, Permissions::from_mode(0o700)).unwrap(); // so that it can be removed
    let said = text(&output.stderr);
    let reported = format!("'crt' : cannot read '{}': Permission denied", hidden.display());
    assert!(!output.status.success() && said.contains(&reported), "{said}");
}
