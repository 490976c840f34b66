//! The command line: HAProxy's, with its meanings, or refused by name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// What was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// `-f`, and what follows `--`.
    pub(crate) files: Vec<PathBuf>,
    /// `-C`
    pub(crate) folder: Option<PathBuf>,
    /// `-c`
    pub(crate) check: bool,
    /// `-cc`
    pub(crate) condition: Option<OsString>,
    /// `-D`
    pub(crate) daemon: bool,
    /// `-d` or `-db`
    pub(crate) foreground: bool,
    /// `-V` or `-d`
    pub(crate) verbose: bool,
    /// `-q`
    pub(crate) quiet: bool,
    /// `-v`
    pub(crate) version: bool,
    /// `-vv`
    pub(crate) build: bool,
    /// `-h`, `--help`, with a keyword or none.
    pub(crate) help: Option<Vec<OsString>>,
    /// `-p`
    pub(crate) pidfile: Option<PathBuf>,
    /// `-n`
    pub(crate) maxconn: Option<u32>,
    /// `-m`: megabytes
    pub(crate) megabytes: Option<u64>,
    /// `-L`
    pub(crate) local_peer: Option<OsString>,
    /// `-dW`
    pub(crate) warnings_are_errors: bool,
    /// `-dD`
    pub(crate) diagnose: bool,
    /// `-dr`
    pub(crate) ignore_unresolved: bool,
    /// `-dS`
    pub(crate) no_splice: bool,
    /// `-dR`
    pub(crate) no_reuse_port: bool,
    /// `-de`
    pub(crate) no_epoll: bool,
    /// `-sf`: told to finish.
    pub(crate) finish: Vec<i32>,
    /// `-st`: told to end at once.
    pub(crate) terminate: Vec<i32>,
}

/// How the program is called.
pub(crate) const USAGE: &str = "\
Usage : manylane [-f <file or folder>]... [option...]
        manylane demo
        manylane --help <keyword>
  -f <path>    configuration: a file, or a folder whose *.cfg files are read; may be repeated
  -C <folder>  changes to this folder first
  -c           checks the configuration and ends
  -cc <text>   evaluates a condition and ends
  -D           goes to the background
  -d, -db      stays in the foreground (-d: and says more)
  -V, -q       says more, says nothing but errors
  -v, -vv      shows the version, and what is built
  -p <file>    writes the process's number there
  -n <number>  connections at most
  -m <number>  megabytes of memory at most
  -L <name>    name among peers
  -dW -dD      warnings are errors; reports what is suspicious
  -dr -dS -dR  names that have no address are ignored; no splicing; no shared ports
  -de -dp      no epoll (then io_uring); no poll (it is never used)
  -dM -dI -dG  accepted, without effect: memory is checked by the compiler, nothing forks, names are resolved one way
  -sf, -st <pid>...  processes to be told, once this one listens, to finish or to end at once
";

/// Options of HAProxy that are refused, and why.
const REFUSED: &[(&str, &str)] = &[
    ("-W", "there is no master process yet; let the service manager watch over the process"),
    ("-Ws", "there is no master process yet; let the service manager watch over the process"),
    (
        "-S",
        "there is no master process yet; 'stats socket' of the section 'global' is the run-time interface",
    ),
    ("-x", "listening sockets are not taken from another process yet; ports are shared during a reload"),
    ("-N", "use 'maxconn' in 'defaults'"),
    ("-dL", "the program is one file"),
    ("-dK", "use --help with a keyword, or docs/configuration.md"),
    ("-dC", "the configuration is not printed yet"),
    ("-dV", "TLS is not built yet"),
    ("-dt", "traces are not built"),
    ("-dZ", "bytes are never copied between both sides"),
    ("-4", "write ipv4@ before the addresses"),
    ("-6", "write ipv6@ before the addresses"),
];

impl Arguments {
    /// Reads the words behind the program's name.
    ///
    /// # Errors
    /// A sentence that names the word.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut arguments = Self::default();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let text = String::from_utf8_lossy(word.as_bytes()).into_owned();
            let mut value =
                |what: &str| words.next().ok_or_else(|| format!("option '{text}' expects {what}"));
            match &*text {
                "-f" => arguments.files.push(value("a file or a folder")?.into()),
                "-C" => arguments.folder = Some(value("a folder")?.into()),
                "-c" => arguments.check = true,
                "-cc" => arguments.condition = Some(value("a condition")?),
                "-D" => arguments.daemon = true,
                "-d" => (arguments.foreground, arguments.verbose) = (true, true),
                "-db" => arguments.foreground = true,
                "-V" => arguments.verbose = true,
                "-q" => arguments.quiet = true,
                "-v" => arguments.version = true,
                "-vv" => arguments.build = true,
                "-h" | "--help" => arguments.help = Some(words.by_ref().collect()),
                "-p" => arguments.pidfile = Some(value("a file")?.into()),
                "-n" => arguments.maxconn = Some(number(&text, &value("a number")?)?),
                "-m" => arguments.megabytes = Some(u64::from(number(&text, &value("a number")?)?)),
                "-L" => arguments.local_peer = Some(value("a name")?),
                "-dW" => arguments.warnings_are_errors = true,
                "-dD" => arguments.diagnose = true,
                "-dr" => arguments.ignore_unresolved = true,
                "-dS" => arguments.no_splice = true,
                "-dR" => arguments.no_reuse_port = true,
                "-de" => arguments.no_epoll = true,
                "-dp" | "-dI" | "-dG" => {}
                dm if dm.starts_with("-dM") => {}
                "-sf" | "-st" => {
                    let list = if text == "-sf" { &mut arguments.finish } else { &mut arguments.terminate };
                    while let Some(pid) = words.next_if(|word| !word.as_bytes().starts_with(b"-")) {
                        list.push(number(&text, &pid)?.cast_signed());
                    }
                }
                "--" => arguments.files.extend(words.by_ref().map(PathBuf::from)),
                _ => {
                    let refused = REFUSED.iter().find(|(name, _)| *name == text);
                    return Err(match refused {
                        Some((name, why)) => {
                            format!("'{name}' is an option of HAProxy that this program refuses: {why}")
                        }
                        None => format!("unknown option '{text}'; -h lists those there are"),
                    });
                }
            }
        }
        Ok(arguments)
    }
}

fn number(option: &str, word: &OsStr) -> Result<u32, String> {
    let text = word.to_str().unwrap_or_default();
    let number = text.parse::<u32>().ok().filter(|&n| n > 0 && n <= i32::MAX.cast_unsigned());
    number.ok_or_else(|| {
        format!(
            "option '{option}' expects a number above 0 and got '{}'",
            String::from_utf8_lossy(word.as_bytes())
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Arguments, String> {
        Arguments::read(text.split_whitespace().map(OsString::from))
    }

    #[test]
    fn options_of_haproxy_are_read_or_refused_by_name() {
        let all = read("-d -dM -dI -dW -f a.cfg -f b -p pid -sf 12 34 -st 5 -- c").unwrap();
        assert_eq!(all.files, ["a.cfg", "b", "c"].map(PathBuf::from));
        assert_eq!((&*all.finish, &*all.terminate), (&[12, 34][..], &[5][..]));
        assert!(all.foreground && all.verbose && all.warnings_are_errors);
        for (name, _) in REFUSED {
            let error = read(name).unwrap_err();
            assert!(error.starts_with(&format!("'{name}' is an option of HAProxy")), "{error}");
        }
        for (text, error) in [
            ("-f", "option '-f' expects a file or a folder"),
            ("-n x", "option '-n' expects a number above 0 and got 'x'"),
            ("-Z", "unknown option '-Z'; -h lists those there are"),
        ] {
            assert_eq!(read(text).unwrap_err(), error);
        }
    }
}
