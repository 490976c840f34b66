//! Client of the run-time socket.

use crate::TIMEOUT;
use crate::case::Compared;
use serde_json::Value;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Instant;

/// Returns the response to a line, or to several with a payload.
///
/// # Panics
/// If the socket does not exist in time, or the response does not end.
pub fn ask(socket: &Path, command: &str) -> String {
    let until = Instant::now() + TIMEOUT;
    let mut stream = loop {
        match UnixStream::connect(socket) {
            Ok(stream) => break stream,
            Err(error) => assert!(Instant::now() < until, "{}: {error}", socket.display()),
        }
        crate::look_again(); // the program binds while it starts
    };
    stream.set_read_timeout(Some(TIMEOUT)).unwrap();
    stream.write_all(format!("{command}\n").as_bytes()).unwrap();
    let mut answer = Vec::new();
    match stream.read_to_end(&mut answer) {
        // The program closed before it read all lines.
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => {
            panic!("'{command}': {error} after '{}'", String::from_utf8_lossy(&answer))
        }
        _ => String::from_utf8_lossy(&answer).into_owned(),
    }
}

/// Repeats a command until the response contains `text`, or until it does not if `there` is false.
///
/// # Panics
/// If that never happens.
pub fn ask_until(socket: &Path, command: &str, text: &str, there: bool) {
    let until = Instant::now() + TIMEOUT;
    loop {
        let answer = ask(socket, command);
        if answer.contains(text) == there {
            return;
        }
        assert!(Instant::now() < until, "'{command}' is never so ('{text}' {there}):\n{answer}");
        crate::look_again();
    }
}

/// Returns the part of a response that is compared. Numbers that identify objects of a run become `0xID`,
/// ports `PORT`; empty lines at the end are dropped.
pub fn compared(answer: &str, part: &Compared) -> String {
    // HAProxy ends some responses without an empty line.
    let answer = masked(answer).trim_end().to_owned() + "\n";
    match part {
        Compared::All => answer,
        Compared::Lines(beginnings) => {
            let wanted =
                |line: &&str| beginnings.iter().any(|beginning| line.trim_start().starts_with(&**beginning));
            answer.lines().filter(wanted).map(|line| format!("{line}\n")).collect()
        }
        Compared::Words(beginnings) => {
            // HAProxy counts the asking client among its sessions.
            let lines = answer.lines().filter(|line| !line.contains("fe=GLOBAL"));
            let words = lines.map(|line| {
                let wanted = |word: &&str| beginnings.iter().any(|beginning| word.starts_with(&**beginning));
                line.split(' ').filter(wanted).collect::<Vec<_>>().join(" ")
            });
            words.filter(|line| !line.is_empty()).map(|line| line + "\n").collect()
        }
        Compared::Columns(names) => columns(&answer, names),
        Compared::Names => {
            let names = answer.lines().map(|line| line.split(':').next().unwrap_or_default().trim_end());
            names.map(|name| format!("{name}\n")).collect()
        }
        Compared::Types => {
            let types = answer.lines().map(|line| line.rsplit_once(':').map_or(line, |(before, _)| before));
            types.map(|types| format!("{types}\n")).collect()
        }
        Compared::Json => json(&answer),
        Compared::Form => answer.lines().map(|line| form(line) + "\n").collect(),
    }
}

/// Shows a JSON text as its leaves, a line each with its path; lists of fields have a line for each field
/// without its value. Other text is unchanged.
fn json(answer: &str) -> String {
    fn leaves(path: &str, value: &Value, lines: &mut String) {
        match value {
            Value::Object(members) if members.contains_key("processNum") => {
                let mut members = members.clone();
                if let Some(value) = members.get_mut("value").and_then(Value::as_object_mut) {
                    value.remove("value");
                }
                *lines += &format!("{}\n", Value::Object(members));
            }
            Value::Object(members) => {
                members.iter().for_each(|(name, member)| leaves(&format!("{path}/{name}"), member, lines));
            }
            Value::Array(all) => all.iter().for_each(|one| leaves(path, one, lines)),
            leaf => *lines += &format!("{path} {leaf}\n"),
        }
    }
    let Ok(value) = serde_json::from_str(answer) else { return answer.to_owned() };
    let mut lines = String::new();
    leaves("", &value, &mut lines);
    lines
}

/// Replaces numbers by `N`, and runs of blanks by one: widths depend on numbers.
fn form(line: &str) -> String {
    let mut text = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '0'..='9' => {
                while letters.next_if(|next| next.is_ascii_digit() || *next == '.').is_some() {}
                text.push('N');
            }
            ' ' if text.ends_with(' ') => {}
            letter => text.push(letter),
        }
    }
    text.trim_end().to_owned()
}

/// Selects columns of a table whose first line has `# ` and their names.
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
        let picked = places
            .iter()
            .map(|index| index.and_then(|position| fields.get(position)).copied().unwrap_or("(none)"));
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
        assert_eq!(compared("0x7f01 a\n127.0.0.1:80 b\n", &Compared::All), "0xID a\n127.0.0.1:PORT b\n");
        let names = vec!["b".to_owned(), "x".to_owned()];
        assert_eq!(
            compared("# a,b,\n1,2,\n\n", &Compared::Columns(names)),
            "b,x\n2,(none)\n".replace("b,x", "b,(none)")
        );
        let lines = Compared::Lines(vec!["Pid".to_owned()]);
        assert_eq!(compared("Name: x\nPid: 1\n", &lines), "Pid: 1\n");
        assert_eq!(compared("Name: x: y\nPid : 1\n", &Compared::Names), "Name\nPid\n");
        assert_eq!(compared("1.Pid.1:SGP:u32:7\nx\n", &Compared::Types), "1.Pid.1:SGP:u32\nx\n");
        let json = "[{\"processNum\":1,\"id\":1,\"value\":{\"type\":\"u32\",\"value\":7}},{\"id\":2}]";
        let objects = "{\"id\":1,\"processNum\":1,\"value\":{\"type\":\"u32\"}}\n/id 2\n";
        assert_eq!(compared(json, &Compared::Json), objects);
        assert_eq!(compared("a1:  12.5%   b\n", &Compared::Form), "aN: N% b\n");
        let words = Compared::Words(vec!["fe=".to_owned(), "be=".to_owned()]);
        assert_eq!(compared("0x1: fe=a x=1 be=b\n\n0x2: fe=GLOBAL be=c\n", &words), "fe=a be=b\n");
    }
}
