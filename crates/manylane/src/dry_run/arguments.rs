//! The command lines of `manylane explain` and `manylane test`.

use super::{alert, found};
use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

pub(crate) const EXPLAIN_USAGE: &str = "\
Usage : manylane explain [--json] <file or folder>...

  Prints the rules of each frontend and of the backends that it reaches, in the order in which they are
  evaluated: what each looks at, what it waits for, and how it can end a request.

  --json          in JSON
";

pub(crate) const TEST_USAGE: &str = "\
Usage : manylane test [option...] <file or folder>... <request>

  Evaluates the rules on one request, and prints what each does and where the request goes. Nothing is
  bound or sent. <request> is '[<method>] <URL or path>', such as 'GET https://www.example.org/a?b=c', or
  '@<file>' or '-' (standard input) for the bytes of a request.

  -H <field>      adds a header field, such as 'Cookie: a=1'; may be repeated
  --body <file>   the body; '-' is standard input
  --frontend <name>
                  the frontend; without it, the one that listens on the port of the URL
  --src <address>[:<port>]
                  the client's address
  --dst <address>[:<port>]
                  the address that the client connects to
  --sni <name>    the name that the client asks for in its TLS handshake, instead of the URL's host
  --json          in JSON

  Exit code: 0 if the request reaches a server or an answer, 2 if it does not or if that is unknown, 1 if the
  configuration, the request or the frontend is wrong.
";

/// What `manylane explain` is to do.
pub(super) struct ExplainArguments {
    pub(super) files: Vec<PathBuf>,
    pub(super) json: bool,
}

impl ExplainArguments {
    /// Returns nothing if help is asked for.
    pub(super) fn read(words: &[OsString]) -> Result<Option<Self>, String> {
        let mut arguments = Self { files: Vec::new(), json: false };
        let mut words = words.iter();
        while let Some(word) = words.next() {
            match word.as_bytes() {
                b"--json" => arguments.json = true,
                b"-h" | b"--help" => return Ok(None),
                b"--" => arguments.files.extend(words.by_ref().map(PathBuf::from)),
                b"-f" => arguments.files.push(value("-f", "a file or a folder", words.next())?.into()),
                other if other.starts_with(b"-") => return Err(unknown("explain", word)),
                _ => arguments.files.push(word.into()),
            }
        }
        if arguments.files.is_empty() {
            return Err(alert("expected a file or a folder, found none; 'manylane explain -h' says more"));
        }
        Ok(Some(arguments))
    }
}

/// What `manylane test` is to do.
#[derive(Debug, Default)]
pub(super) struct TestArguments {
    pub(super) files: Vec<PathBuf>,
    /// `<request>`
    pub(super) request: OsString,
    /// `-H`
    pub(super) fields: Vec<Vec<u8>>,
    /// `--body`
    pub(super) body: Option<OsString>,
    /// `--frontend`
    pub(super) frontend: Option<String>,
    /// `--src`, with port 0 where none is named.
    pub(super) source: Option<SocketAddr>,
    /// `--dst`, likewise.
    pub(super) destination: Option<SocketAddr>,
    /// `--sni`
    pub(super) server_name: Option<Box<str>>,
    /// `--json`
    pub(super) json: bool,
}

impl TestArguments {
    /// Returns nothing if help is asked for.
    pub(super) fn read(words: &[OsString]) -> Result<Option<Self>, String> {
        let mut arguments = Self::default();
        let mut plain: Vec<OsString> = Vec::new();
        let mut words = words.iter();
        while let Some(word) = words.next() {
            let mut text = |option: &str, what: &str| {
                let word = value(option, what, words.next())?;
                word.into_string().map_err(|word| {
                    alert(format_args!(
                        "'{option}' expects text in UTF-8, found {}",
                        found(&word.to_string_lossy())
                    ))
                })
            };
            match word.as_bytes() {
                b"--json" => arguments.json = true,
                b"-h" | b"--help" => return Ok(None),
                b"--" => plain.extend(words.by_ref().cloned()),
                b"-H" => arguments.fields.push(value("-H", "a header field", words.next())?.into_vec()),
                b"-f" => arguments.files.push(value("-f", "a file or a folder", words.next())?.into()),
                b"--body" => arguments.body = Some(value("--body", "a file", words.next())?),
                b"--frontend" => arguments.frontend = Some(text("--frontend", "the name of a frontend")?),
                b"--sni" => arguments.server_name = Some(text("--sni", "a name")?.into()),
                b"--src" => arguments.source = Some(address("--src", &text("--src", "an address")?)?),
                b"--dst" => arguments.destination = Some(address("--dst", &text("--dst", "an address")?)?),
                b"-" => plain.push(word.clone()),
                other if other.starts_with(b"-") => return Err(unknown("test", word)),
                _ => plain.push(word.clone()),
            }
        }
        let request = plain.pop();
        arguments.files.extend(plain.into_iter().map(PathBuf::from));
        match request {
            Some(request) if !arguments.files.is_empty() => arguments.request = request,
            _ => {
                return Err(alert(
                    "expected a file and a request, such as: manylane test haproxy.cfg 'GET \
                     https://www.example.org/'; 'manylane test -h' says more",
                ));
            }
        }
        Ok(Some(arguments))
    }
}

fn value(option: &str, what: &str, word: Option<&OsString>) -> Result<OsString, String> {
    word.cloned().ok_or_else(|| alert(format_args!("option '{option}' expects {what}, found none")))
}

fn unknown(command: &str, word: &OsStr) -> String {
    let word = found(&word.to_string_lossy());
    alert(format_args!("unknown option {word}; 'manylane {command} -h' lists all"))
}

fn address(option: &str, text: &str) -> Result<SocketAddr, String> {
    let plain = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(text);
    let alone = || plain.parse::<IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0));
    text.parse().ok().or_else(alone).ok_or_else(|| {
        alert(format_args!(
            "'{option}' expects an IP address, with or without ':' and a port, found {}",
            found(text)
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Option<TestArguments>, String> {
        TestArguments::read(&words.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn the_last_word_is_the_request_and_those_before_it_are_files() {
        let arguments =
            read(&["a.cfg", "-H", "A: 1", "b", "--src", "192.0.2.1", "--dst", "[::1]:80", "GET /"]);
        let arguments = arguments.unwrap().unwrap();
        assert_eq!(arguments.files, ["a.cfg", "b"].map(PathBuf::from));
        assert_eq!(arguments.request, "GET /");
        assert_eq!(arguments.fields, [b"A: 1".to_vec()]);
        assert_eq!(arguments.source, Some("192.0.2.1:0".parse().unwrap()));
        assert_eq!(arguments.destination, Some("[::1]:80".parse().unwrap()));
        assert!(read(&["a.cfg", "-"]).unwrap().is_some() && read(&["-h"]).unwrap().is_none());
    }

    #[test]
    fn what_is_wrong_is_reported_in_one_sentence() {
        for (words, sentence) in [
            (&["GET /"][..], "expected a file and a request"),
            (&["a.cfg", "--nothing", "GET /"], "unknown option '--nothing'; 'manylane test -h' lists all"),
            (
                &["a.cfg", "GET /", "--src", "x"],
                "'--src' expects an IP address, with or without ':' and a port, found 'x'",
            ),
            (&["a.cfg", "GET /", "--body"], "option '--body' expects a file, found none"),
        ] {
            let error = read(words).unwrap_err();
            assert!(error.contains(sentence) && error.trim_end().lines().count() == 1, "{error}");
        }
    }
}
