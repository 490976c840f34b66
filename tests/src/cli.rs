//! The run-time socket of a program.

use crate::PATIENCE;
use crate::case::Shown;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

/// What a line, or several with a payload, is answered with.
///
/// # Panics
/// When there is no such socket in time, or the answer does not end.
pub fn ask(socket: &Path, command: &str) -> String {
    let until = Instant::now() + PATIENCE;
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < until, "{}: {error}", socket.display()),
        }
        std::thread::yield_now(); // the program binds while it starts
    };
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream
        .read_to_string(&mut answer)
        .unwrap_or_else(|error| panic!("'{command}': {error} after '{answer}'"));
    answer
}

/// What of an answer is compared. Numbers that tell one thing of a run from another are `0xID`, ports `PORT`; empty lines at
/// the end do not count.
pub fn shown(answer: &str, shown: &Shown) -> String {
    // haproxy ends some answers without an empty line.
    let answer = masked(answer).trim_end().to_owned() + "\n";
    match shown {
        Shown::All => answer,
        Shown::Lines(beginnings) => {
            let wanted =
                |line: &&str| beginnings.iter().any(|beginning| line.trim_start().starts_with(&**beginning));
            answer.lines().filter(wanted).map(|line| format!("{line}\n")).collect()
        }
        Shown::Words(beginnings) => {
            // haproxy counts who asks among its sessions.
            let lines = answer.lines().filter(|line| !line.contains("fe=GLOBAL"));
            let words = lines.map(|line| {
                let wanted = |word: &&str| beginnings.iter().any(|beginning| word.starts_with(&**beginning));
                line.split(' ').filter(wanted).collect::<Vec<_>>().join(" ")
            });
            words.filter(|line| !line.is_empty()).map(|line| line + "\n").collect()
        }
        Shown::Columns(names) => columns(&answer, names),
    }
}

/// The columns of a table whose first line has `# ` and their names.
fn columns(answer: &str, names: &[String]) -> String {
    let Some(header) = answer.lines().find_map(|line| line.strip_prefix("# ")) else { return answer.into() };
    let separator = if header.contains(',') { ',' } else { ' ' };
    let all: Vec<&str> = header.split(separator).collect();
    let places: Vec<Option<usize>> =
        names.iter().map(|name| all.iter().position(|own| own == name)).collect();
    let mut text = String::new();
    for line in answer.lines().skip_while(|line| !line.starts_with("# ")).filter(|line| !line.is_empty()) {
        let line = line.strip_prefix("# ").unwrap_or(line);
        let fields: Vec<&str> = line.split(separator).collect();
        let picked =
            places.iter().map(|place| place.and_then(|place| fields.get(place)).copied().unwrap_or("(none)"));
        text += &(picked.collect::<Vec<_>>().join(",") + "\n");
    }
    text
}

fn masked(answer: &str) -> String {
    let mut text = String::new();
    let mut rest = answer;
    while let Some(at) = rest.find("0x") {
        text += &rest[..at];
        text += "0xID";
        rest = rest[at + 2..].trim_start_matches(|letter: char| letter.is_ascii_hexdigit());
    }
    text += rest;
    let mut parts = text.split("127.0.0.1:");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        text += "127.0.0.1:PORT";
        text += part.trim_start_matches(|letter: char| letter.is_ascii_digit());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_runs_cannot_share_is_masked_and_columns_are_picked_by_name() {
        assert_eq!(shown("0x7f01 a\n127.0.0.1:80 b\n", &Shown::All), "0xID a\n127.0.0.1:PORT b\n");
        let names = vec!["b".to_owned(), "x".to_owned()];
        assert_eq!(
            shown("# a,b,\n1,2,\n\n", &Shown::Columns(names)),
            "b,x\n2,(none)\n".replace("b,x", "b,(none)")
        );
        let lines = Shown::Lines(vec!["Pid".to_owned()]);
        assert_eq!(shown("Name: x\nPid: 1\n", &lines), "Pid: 1\n");
        let words = Shown::Words(vec!["fe=".to_owned(), "be=".to_owned()]);
        assert_eq!(shown("0x1: fe=a x=1 be=b\n\n0x2: fe=GLOBAL be=c\n", &words), "fe=a be=b\n");
    }
}
