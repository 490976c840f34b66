//! `-c` on the configurations that HAProxy's package brings: its examples, and Debian's stock file. The page
//! `docs/haproxy-examples.md` has the verdicts of both programs; `MANYLANE_BLESS=1` writes it.

use crate::common::{Folder, command, watch::Haproxy};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const PAGE: &str = "\
# HAProxy's examples

<!-- Made by `MANYLANE_BLESS=1 cargo test -p manylane-tests --test e2e documented`. -->

What `haproxy -c` and `manylane -c` say of the configurations in HAProxy 3.2's package; Debian's `haproxy-doc`
has none. Where a file names users, groups or certificates, the test puts some in their place that are there.

| file | HAProxy 3.2 | Manylane | why |
|---|---|---|---|
";

/// The folder of the package, which `scripts/peers` has unpacked.
fn package() -> Option<PathBuf> {
    Some(Haproxy::program()?.parent()?.join("../.."))
}

/// The files, with names for the page.
fn files(package: &Path) -> Vec<(String, PathBuf)> {
    let mut all = vec![("haproxy.cfg (Debian's)".to_owned(), package.join("etc/haproxy/haproxy.cfg"))];
    let examples = fs::read_dir(package.join("usr/share/doc/haproxy/examples")).into_iter().flatten();
    let paths = examples.flatten().map(|entry| entry.path());
    for path in paths.filter(|path| path.extension().is_some_and(|kind| kind == "cfg")) {
        all.push((path.file_name().unwrap().to_string_lossy().into_owned(), path));
    }
    all.sort();
    all
}

/// The verdict of a program, and its reasons for refusals.
fn outcome(mut program: Command, folder: &Folder) -> (&'static str, BTreeSet<String>) {
    let out =
        program.current_dir(&folder.0).args(["-c", "-f", "test.cfg"]).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    let why =
        said.lines().filter_map(|line| Some(line.split_once("that this program refuses: ")?.1.to_owned()));
    match out.status.code() {
        Some(0) => ("takes it", BTreeSet::new()),
        Some(2) => ("takes it, nothing listens", BTreeSet::new()),
        _ => ("refuses it", why.collect()),
    }
}

#[test]
fn verdicts_about_haproxys_examples_are_those_of_the_page() {
    let Some(package) = package() else { return };
    let certified = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
    let pem = certified.cert.pem() + &certified.signing_key.serialize_pem();
    let mut page = PAGE.to_owned();
    let mut taken = 0;
    for (name, path) in files(&package) {
        let folder = Folder::new();
        let text = fs::read_to_string(&path).unwrap();
        let text = text.replace("user haproxy", "user root").replace("group haproxy", "group root");
        let errors = package.join("etc/haproxy/errors").canonicalize().unwrap();
        let text = text.replace("/etc/haproxy/errors", &errors.to_string_lossy());
        folder.file("test.cfg", &text);
        for certificate in ["pub1.pem", "pub2.pem"] {
            folder.file(certificate, &pem);
        }
        let (theirs, _) = outcome(Command::new(Haproxy::program().unwrap()), &folder);
        let (ours, why) = outcome(command(), &folder);
        taken += usize::from(ours == "takes it");
        let why: Vec<String> = why.into_iter().collect();
        page += &format!("| {name} | {theirs} | {ours} | {} |\n", why.join("; "));
    }
    assert!(taken >= 6, "{page}");
    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/haproxy-examples.md");
    if std::env::var_os("MANYLANE_BLESS").is_some() {
        fs::write(&kept, &page).unwrap();
    }
    let kept = fs::read_to_string(kept).unwrap_or_default();
    assert!(kept == page, "the page is stale; it would be:\n{page}");
}
