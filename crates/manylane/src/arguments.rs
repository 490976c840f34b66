//! The command line: HAProxy's options with their meanings, or refused by name.

use crate::master::Joined;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Mode of a master process: whether it notifies the service manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Master {
    Silent,
    Notifies,
}

/// The options of a command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Arguments {
    /// `-f`, and the words behind `--`.
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
    /// `-h`, `--help`, with or without keywords.
    pub(crate) help: Option<Vec<OsString>>,
    /// `-p`
    pub(crate) pidfile: Option<PathBuf>,
    /// `-n`
    pub(crate) maxconn: Option<u32>,
    /// `-m`, in megabytes.
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
    /// `-W`, `-Ws`
    pub(crate) master: Option<Master>,
    /// `-S`
    pub(crate) master_sockets: Vec<OsString>,
    /// `--background`, which is for internal use: the process that starts this one in the background passes a
    /// descriptor, over which this one reports its start.
    pub(crate) background: Option<i32>,
    /// `--worker`, which is for internal use: a master passes what joins it and the worker.
    pub(crate) worker: Option<Joined>,
    /// `-x`: socket of the process that hands over its listening sockets.
    pub(crate) predecessor: Option<OsString>,
    /// `-sf`: processes that are told to finish.
    pub(crate) finish: Vec<i32>,
    /// `-st`: processes that are told to end at once.
    pub(crate) terminate: Vec<i32>,
}

/// An option: its names, its value and its effect.
type Row = (&'static [&'static str], &'static str, &'static str);

/// Accepted options.
const OPTIONS: &[Row] = &[
    (&["-f"], " <path>", "configuration: a file, or a folder whose *.cfg files are read; may be repeated"),
    (&["--"], " <path>...", "the same for all words that follow"),
    (&["-C"], " <folder>", "changes to this folder first"),
    (&["-c"], "", "checks the configuration and ends"),
    (&["-cc"], " <text>", "evaluates a condition and ends"),
    (&["-D"], "", "goes to the background; the command ends once the process serves"),
    (&["-d"], "", "stays in the foreground and says more"),
    (&["-db"], "", "stays in the foreground"),
    (&["-V"], "", "says more, with -c also that the configuration is valid"),
    (&["-q"], "", "says nothing: the exit code tells"),
    (&["-v", "--version"], "", "shows the version"),
    (&["-vv"], "", "shows what is built"),
    (
        &["-h", "--help"],
        " [<name>]",
        "shows this, or what is known of a keyword, an action, a fetch, a converter or an option",
    ),
    (&["-p"], " <file>", "writes the process's number there"),
    (&["-n"], " <number>", "connections at most"),
    (&["-m"], " <number>", "megabytes of memory at most"),
    (&["-L"], " <name>", "name of this process among its peers: HAPROXY_LOCALPEER"),
    (&["-dW"], "", "warnings are errors"),
    (&["-dD"], "", "reports what is suspicious"),
    (&["-dr"], "", "a server whose name cannot be resolved begins without an address"),
    (&["-dS"], "", "no splicing"),
    (&["-dR"], "", "no shared ports"),
    (&["-de"], "", "no epoll: then io_uring"),
    (&["-dp", "-dk", "-dv"], "", "no poll, kqueue, event ports: they are never used"),
    (
        &["-dF", "-dZ"],
        "",
        "accepted, without effect: bytes are forwarded in one way, and never copied between both sides",
    ),
    (&["-dM"], "[<byte>][,<word>...]", "accepted, without effect: memory is checked by the compiler"),
    (&["-dI"], "", "accepted, without effect: only checks by programs start any, and may do so"),
    (&["-dG"], "", "accepted, without effect: names are resolved in one way"),
    (&["-W"], "", "a master process watches over the worker, and replaces it on SIGUSR2"),
    (&["-Ws"], "", "the same, and tells the service manager (sd_notify) when it is ready"),
    (
        &["-S"],
        " <address>[,<option>...]",
        "the master listens there for commands; options are those of bind; may be repeated",
    ),
    (
        &["-x"],
        " <socket>",
        "takes the listening sockets of the process whose 'stats socket', with 'expose-fd listeners', this \
            is; /dev/null: none",
    ),
    (&["-sf"], " <pid>...", "processes that this one tells to finish, once it listens"),
    (&["-st"], " <pid>...", "processes that this one ends, once it listens"),
];

/// Words behind `-dM`: HAProxy's, about memory pools.
const OF_POOLS: &[&str] = &[
    "fail",
    "no-fail",
    "no-merge",
    "merge",
    "cold-first",
    "hot-first",
    "integrity",
    "no-integrity",
    "no-global",
    "global",
    "no-cache",
    "cache",
    "caller",
    "no-caller",
    "tag",
    "no-tag",
    "poison",
    "no-poison",
    "uaf",
    "no-uaf",
    "backup",
    "no-backup",
];

/// Returns the usage text.
pub(crate) fn usage() -> String {
    let mut text = String::from(
        "Usage : manylane [-f <file or folder>]... [option...]
        manylane demo [--https]
        manylane explain <file or folder>...
        manylane test <file or folder>... <request>
        manylane --help <name>
",
    );
    for (names, value, what) in OPTIONS {
        text += &format!("  {:<16} {what}\n", format!("{}{value}", names.join(", ")));
    }
    text
}

/// Returns the help text of a command-line option.
///
/// # Errors
/// There is no such option; the sentence names the nearest one.
pub(crate) fn help(name: &str) -> Result<String, String> {
    if let Some((names, value, what)) = OPTIONS.iter().find(|(names, ..)| names.contains(&name)) {
        return Ok(format!("{}{value}\n    An option of the command line: {what}.\n", names.join(", ")));
    }
    if let Some((name, why)) = refused(name) {
        return Ok(format!("{name}\n    An option of HAProxy's command line.\n    Status: refused: {why}\n"));
    }
    let known = OPTIONS.iter().flat_map(|(names, ..)| names.iter().copied());
    let guess = manylane_config::guess(name.as_bytes(), known);
    Err(format!("unknown option '{name}'{guess}"))
}

/// Options of HAProxy that are refused, with the reason. Some take words without a blank before them.
const REFUSED: &[(&str, &str)] = &[
    ("-N", "use 'maxconn' in 'defaults'"),
    ("-dL", "the program is one file"),
    ("-dK", "use --help with a keyword, or docs/configuration.md"),
    ("-dC", "the configuration is not printed yet"),
    ("-dV", "say 'ssl-server-verify none' in the section 'global'"),
    ("-dt", "traces are not built"),
    ("-dA", "no archive of the process is written"),
    ("-dc", "lanes are bound to processors where 'cpu-map' or 'cpu-policy' says so only: leave those out"),
    ("-dl", "there is nothing here that it would switch off"),
    ("-4", "write ipv4@ before the addresses"),
    ("-6", "write ipv6@ before the addresses"),
];

/// Returns the refused option that a word is.
fn refused(word: &str) -> Option<&'static (&'static str, &'static str)> {
    let takes_words = |name: &str| matches!(name, "-dA" | "-dC" | "-dK" | "-dt");
    REFUSED.iter().find(|(name, _)| word == *name || takes_words(name) && word.starts_with(name))
}

impl Arguments {
    /// Parses the words behind the program's name.
    ///
    /// # Errors
    /// A sentence that names the word.
    pub(crate) fn read(words: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut arguments = Self::default();
        let mut words = words.into_iter().peekable();
        while let Some(word) = words.next() {
            let text = String::from_utf8_lossy(word.as_bytes()).into_owned();
            let mut value = |what: &str| {
                words.next().ok_or_else(|| format!("option '{text}' expects {what}, found none"))
            };
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
                "-v" | "--version" => arguments.version = true,
                "-vv" => arguments.build = true,
                "-h" | "--help" => arguments.help = Some(words.by_ref().collect()),
                "-p" => arguments.pidfile = Some(value("a file")?.into()),
                "-n" => arguments.maxconn = Some(number(&text, &value("a number")?)?),
                "-m" => arguments.megabytes = Some(u64::from(number(&text, &value("a number")?)?)),
                "-L" => arguments.local_peer = Some(value("a name")?),
                "-W" => arguments.master = arguments.master.or(Some(Master::Silent)),
                "-Ws" => arguments.master = Some(Master::Notifies),
                "-S" => arguments.master_sockets.push(value("an address")?),
                "--worker" => {
                    let passage = number(&text, &value("a descriptor")?)?.cast_signed();
                    arguments.worker = Some(Joined { passage, master: number(&text, &value("a process")?)? });
                }
                "--background" => {
                    arguments.background = Some(number(&text, &value("a descriptor")?)?.cast_signed());
                }
                // HAProxy's way to take nothing over, for a command line that has another '-x'.
                "-x" => arguments.predecessor = Some(value("a socket")?).filter(|at| at != "/dev/null"),
                "-dW" => arguments.warnings_are_errors = true,
                "-dD" => arguments.diagnose = true,
                "-dr" => arguments.ignore_unresolved = true,
                "-dS" => arguments.no_splice = true,
                "-dR" => arguments.no_reuse_port = true,
                "-de" => arguments.no_epoll = true,
                "-dp" | "-dk" | "-dv" | "-dF" | "-dZ" | "-dI" | "-dG" => {}
                memory if memory.starts_with("-dM") => of_pools(&memory[3..])?,
                "-sf" | "-st" => {
                    let list = if text == "-sf" { &mut arguments.finish } else { &mut arguments.terminate };
                    while let Some(pid) = words.next_if(|word| !word.as_bytes().starts_with(b"-")) {
                        list.push(number(&text, &pid)?.cast_signed());
                    }
                }
                "--" => arguments.files.extend(words.by_ref().map(PathBuf::from)),
                _ => {
                    return Err(match refused(&text) {
                        Some((_, why)) => {
                            format!("'{text}' is an option of HAProxy that this program refuses: {why}")
                        }
                        None => format!("unknown option '{text}'; -h lists all"),
                    });
                }
            }
        }
        Ok(arguments)
    }
}

/// Checks the value of `-dM`: a byte, and comma-separated words.
fn of_pools(text: &str) -> Result<(), String> {
    let words = match text.strip_prefix("0x") {
        Some(hex) => hex.trim_start_matches(|digit: char| digit.is_ascii_hexdigit()),
        None => text.trim_start_matches(|digit: char| digit.is_ascii_digit()),
    };
    match words.split(',').find(|word| !word.is_empty() && !OF_POOLS.contains(word)) {
        None => Ok(()),
        Some(word) => Err(manylane_config::none_of("-dM", OF_POOLS.iter().copied(), word.as_bytes())),
    }
}

fn number(option: &str, word: &OsStr) -> Result<u32, String> {
    let text = word.to_str().unwrap_or_default();
    let number = text.parse::<u32>().ok().filter(|&n| n > 0 && n <= i32::MAX.cast_unsigned());
    number.ok_or_else(|| {
        format!(
            "option '{option}' expects a number above 0, found '{}'",
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

    /// Each listed option is accepted, and `--help` explains it.
    #[test]
    fn every_option_is_taken_and_explained() {
        for (names, value, what) in OPTIONS {
            for name in *names {
                let word =
                    if value.starts_with(' ') && !matches!(*name, "-h" | "--help") { " 7" } else { "" };
                assert!(read(&format!("{name}{word}")).is_ok(), "{name}");
                assert!(help(name).unwrap().contains(what), "{name}");
                assert!(usage().contains(name));
            }
        }
        assert!(read("-dM0xff,no-merge,tag").is_ok() && read("-dMno-merge").is_ok() && read("-dM,").is_ok());
        assert!(help("-N").unwrap().contains("Status: refused: "));
        assert!(help("-dKall").unwrap().contains("docs/configuration.md"));
        assert_eq!(help("-ff").unwrap_err(), "unknown option '-ff'; did you mean '-f', '-dF' or '-sf'?");
    }

    /// `dist/manylane.8` has the same options with the same words.
    #[test]
    fn the_manual_page_has_every_option() {
        let page = include_str!("../../../dist/manylane.8").replace("\\-", "-").replace("\\(aq", "'");
        let page: Vec<&str> = page.lines().collect();
        for (names, value, what) in OPTIONS {
            let names: Vec<_> = names.iter().map(|name| format!("\"{name}\"")).collect();
            let value = if value.is_empty() { String::new() } else { format!(" \"{value}\"") };
            let head = format!(".BR {}{value}", names.join(" \", \" "));
            let at = page.iter().position(|line| *line == head);
            let said = at.and_then(|at| page.get(at + 1)).unwrap_or_else(|| panic!("{head} is missing"));
            assert!(said.eq_ignore_ascii_case(&format!("{what}.")), "{head}: {said}");
        }
    }

    #[test]
    fn options_of_haproxy_are_read_or_refused_by_name() {
        let all = read("-d -dM -dI -dW -f a.cfg -f b -p pid -sf 12 34 -st 5 -- c").unwrap();
        assert_eq!(all.files, ["a.cfg", "b", "c"].map(PathBuf::from));
        assert_eq!((&*all.finish, &*all.terminate), (&[12, 34][..], &[5][..]));
        assert!(all.foreground && all.verbose && all.warnings_are_errors);
        assert_eq!(read("-x /run/cli").unwrap().predecessor, Some("/run/cli".into()));
        assert_eq!(read("-x /run/cli -x /dev/null").unwrap().predecessor, None);
        for (name, _) in REFUSED {
            let error = read(name).unwrap_err();
            assert!(error.starts_with(&format!("'{name}' is an option of HAProxy")), "{error}");
        }
        for (text, error) in [
            ("-f", "option '-f' expects a file or a folder, found none"),
            ("-n x", "option '-n' expects a number above 0, found 'x'"),
            ("-dMfoo", "'-dM' expects "),
            ("-dM0,no-merge,foo", "'-dM' expects "),
            ("-dKall", "'-dKall' is an option of HAProxy that this program refuses: "),
            ("-Z", "unknown option '-Z'; -h lists all"),
        ] {
            let said = read(text).unwrap_err();
            assert!(if error.ends_with(' ') { said.starts_with(error) } else { said == error }, "{said}");
        }
    }
}
