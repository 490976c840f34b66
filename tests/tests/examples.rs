//! Each file in `examples/` runs and does what the comments at its top say: a command after `# $ `, and its
//! output below. Commands between a line `# First:` and the next empty one run before the program starts.
//!
//! Inherited listeners replace the ports, so that examples run concurrently. `make examples` runs the files
//! unchanged: `MANYLANE_EXAMPLES=as-they-are`.

#![allow(clippy::unwrap_used)]

use manylane_tests::TIMEOUT;
use manylane_tests::program::{Program, manylane};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

/// A command and its output.
#[derive(Debug, PartialEq, Eq)]
struct Try {
    command: String,
    prints: String,
    first: bool,
}

fn tries(text: &str) -> Vec<Try> {
    let mut all: Vec<Try> = Vec::new();
    let (mut open, mut first) = (false, false);
    for line in text.lines().take_while(|line| line.starts_with('#')) {
        let line = line.trim_start_matches('#').strip_prefix(' ').unwrap_or_default();
        if let Some(command) = line.strip_prefix("$ ") {
            all.push(Try { command: command.into(), prints: String::new(), first });
            open = true;
        } else if line.is_empty() {
            (open, first) = (false, false);
        } else if line == "First:" {
            first = true;
        } else if open && let Some(last) = all.last_mut() {
            last.prints.push_str(line);
            last.prints.push('\n');
        }
    }
    all
}

/// Addresses where the file listens, such as `127.0.0.1:18080`.
fn addresses(text: &str) -> Vec<String> {
    let binds = text.lines().filter_map(|line| line.trim().strip_prefix("bind 127.0.0.1:"));
    binds.map(|rest| format!("127.0.0.1:{}", rest.split(' ').next().unwrap())).collect()
}

fn check(path: &Path, root: &Path, as_they_are: bool) -> Result<usize, String> {
    let mut text = fs::read_to_string(path).unwrap();
    let tries_of_it = tries(&text);
    if tries_of_it.is_empty() {
        return Err("its comments say nothing to try".into());
    }
    let folder = std::env::temp_dir().join(format!("manylane-examples-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let mut listeners = Vec::new();
    // Addresses and files of the example, and what they are here.
    let mut moved: Vec<_> = addresses(&text).into_iter().map(|address| (address.clone(), address)).collect();
    let listens = moved.len();
    let mut config = path.to_path_buf();
    if !as_they_are {
        for (number, (address, here)) in moved.iter_mut().enumerate() {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let name = format!("LISTENER_{number}");
            text = text.replace(&format!("bind {address}"), &format!("bind \"fd@${{{name}}}\""));
            *here = listener.local_addr().unwrap().to_string();
            listeners.push((name, listener));
        }
        for extension in ["sock", "pem"] {
            let own = folder.join(path.with_extension(extension).file_name().unwrap());
            moved.push((format!("/tmp/manylane-example.{extension}"), own.display().to_string()));
        }
        moved[listens..].iter().for_each(|(from, to)| text = text.replace(from, to));
        config = folder.join(path.file_name().unwrap());
        fs::write(&config, text).unwrap();
    }
    let mut wrong = String::new();
    let mut run = |first: bool| {
        for Try { command, prints, .. } in tries_of_it.iter().filter(|one| one.first == first) {
            let here = moved.iter().fold(command.clone(), |command, (from, to)| command.replace(from, to));
            let output = Command::new("sh").args(["-c", &here]).output().unwrap();
            let got = String::from_utf8_lossy(&output.stdout);
            if got.trim_end() != prints.trim_end() {
                wrong += &format!("  $ {command}\n  expected: {prints}  got: {got}\n");
            }
        }
    };
    run(true);
    // Relative names in examples start at the root of the repository.
    let arguments = ["-C", root.to_str().unwrap(), "-f", config.to_str().unwrap()];
    let mut program = Program::start(manylane(), &arguments, &[], listeners);
    let begin = Instant::now();
    let refuses = |(_, address): &&(String, String)| TcpStream::connect(address).is_err();
    while let Some((_, address)) = moved[..listens].iter().find(refuses) {
        if program.ended().is_some() || begin.elapsed() > TIMEOUT {
            return Err(format!("nobody listens on {address}:\n{}", program.wait().1));
        }
        manylane_tests::look_again();
    }
    run(false);
    let (status, errors) = program.stop();
    if wrong.is_empty() { Ok(tries_of_it.len()) } else { Err(format!("{wrong}{status}\n{errors}")) }
}

#[test]
fn every_example_does_what_its_comments_say() {
    if Command::new("curl").arg("--version").output().is_err() {
        eprintln!("NOT SHOWN HERE: curl is not installed");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let as_they_are = std::env::var_os("MANYLANE_EXAMPLES").is_some_and(|how| how == "as-they-are");
    let mut files: Vec<PathBuf> =
        fs::read_dir(root.join("examples")).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "cfg"));
    files.sort();
    assert!(files.len() >= 12);
    let mut wrong = String::new();
    for path in &files {
        match check(path, root, as_they_are) {
            Ok(tried) => eprintln!("{}: {tried} tried", path.file_name().unwrap().display()),
            Err(why) => wrong += &format!("{}\n{why}\n", path.display()),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn what_to_try_is_read_from_the_comments() {
    let text =
        "# What it is.\n#\n# First:\n# $ zero\n#\n# $ one\n# 1\n# 2\n# $ two\n#\n# more\nglobal\n# $ no\n";
    let of =
        |command: &str, prints: &str, first| Try { command: command.into(), prints: prints.into(), first };
    assert_eq!(tries(text), [of("zero", "", true), of("one", "1\n2\n", false), of("two", "", false)]);
    assert_eq!(addresses("x\n    bind 127.0.0.1:80 name a\n    bind local@x\n"), ["127.0.0.1:80"]);
}
