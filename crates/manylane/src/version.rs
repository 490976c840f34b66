//! Built features and those in use: shown by `-v` and `-vv`, and tested by conditions of the configuration.

use crate::arguments::Arguments;
use manylane_config::cond::{Build, LibraryVersion};
use manylane_io::options::has_signatures;
use manylane_io::{DriverChoice, Kind};

/// Answers to `feature()`, `enabled()` and `version_atleast()`.
pub(crate) const BUILD: Build = Build {
    features: BUILT,
    enabled: &["EPOLL", "SPLICE", "GETADDRINFO", "REUSEPORT", "FAST-FORWARD"],
    // The library that rustls calculates with.
    tls: Some(("AWS-LC 5.12.0", LibraryVersion::new(1, 1, 1))),
    awslc_api: Some(37),
    ..Build::bare()
};

/// Returns the build without what the command line and the environment switch off.
pub(crate) fn in_use(arguments: &Arguments) -> Build {
    let no_epoll = arguments.no_epoll
        || matches!(DriverChoice::from_environment(), Ok(DriverChoice::Only(kind)) if kind != Kind::Epoll);
    [(no_epoll, "EPOLL"), (arguments.no_reuse_port, "REUSEPORT"), (arguments.no_splice, "SPLICE")]
        .into_iter()
        .filter(|(off, _)| *off)
        .fold(BUILD, |build, (_, name)| build.without(name))
        .having(if has_signatures() { BUILT } else { &BUILT[1..] })
}

/// Names for which `feature()` is true. They state what a file may use, not which library implements it.
/// `CRYPT_H` and `LIBCRYPT` are hashed passwords, `CPU_AFFINITY` is `cpu-map`, `PRCTL` is `set-dumpable`,
/// `BACKTRACE` and `THREAD_DUMP` are the watchdog's report of a lane that stands still, `SYSTEMD` is the
/// master's report to the service manager, `TPROXY` is `transparent` and `usesrc`, `PCRE2` is the language of
/// regular expressions. The first name is `tcp-md5sig`, which depends on the system; [`in_use`] skips it by
/// its position.
const BUILT: &[&str] = &[
    "HAVE_WORKING_TCP_MD5SIG",
    "ACCEPT4",
    "BACKTRACE",
    "CPU_AFFINITY",
    "CRYPT_H",
    "EPOLL",
    "GETADDRINFO",
    "LIBCRYPT",
    "LINUX_SPLICE",
    "LINUX_TPROXY",
    "MATH",
    "NS",
    "OPENSSL",
    "OPENSSL_AWSLC",
    "PCRE2",
    "PRCTL",
    "PROMEX",
    "RT",
    "SSL",
    "SYSTEMD",
    "TFO",
    "THREAD",
    "THREAD_DUMP",
    "TPROXY",
];

/// Other names of HAProxy. `NETFILTER` is here because the program does not ask for a connection's address
/// before the firewall redirected it, and `PCRE` because the language of regular expressions is that of
/// PCRE2.
const NOT_BUILT: &[&str] = &[
    "51DEGREES",
    "CLOSEFROM",
    "DEVICEATLAS",
    "DL",
    "ECH",
    "ENGINE",
    "EVPORTS",
    "KQUEUE",
    "KTLS",
    "LIBATOMIC",
    "LINUX_CAP",
    "LUA",
    "MEMORY_PROFILING",
    "NETFILTER",
    "OBSOLETE_LINKER",
    "OPENSSL_WOLFSSL",
    "OT",
    "PCRE",
    "PCRE2_JIT",
    "PCRE_JIT",
    "POLL",
    "PROCCTL",
    "PTHREAD_EMULATION",
    "QUIC",
    "QUIC_OPENSSL_COMPAT",
    "SHM_OPEN",
    "SLZ",
    "STATIC_PCRE",
    "STATIC_PCRE2",
    "WURFL",
    "ZLIB",
];

/// Returns all names in the form of HAProxy's `-vv`, which scripts search: `+` before built features, `-`
/// before the others.
fn feature_list() -> String {
    let marked = |names: &'static [&'static str], mark| names.iter().map(move |name| (*name, mark));
    let mut all: Vec<(&str, char)> = marked(BUILT, '+').chain(marked(NOT_BUILT, '-')).collect();
    all.sort_unstable();
    let words: Vec<String> = all.iter().map(|(name, mark)| format!("{mark}{name}")).collect();
    words.join(" ")
}

/// Day of the version in `Cargo.toml`, as shown by `show info`.
pub(crate) const RELEASED: &str = "2026/11/22";

/// Returns the text of `-v`.
pub(crate) fn short() -> String {
    format!(
        "Manylane version {}\nSpeaks the configuration language of HAProxy {}.\n",
        env!("CARGO_PKG_VERSION"),
        BUILD.version
    )
}

/// Returns the text of `-vv`.
pub(crate) fn long(arguments: &Arguments) -> String {
    let enabled: Vec<&str> = in_use(arguments).enabled().collect();
    format!(
        "{}\nDebug assertions : {}\nFeature list : {}\nEnabled at run time : {}\n\
         Drivers : epoll, io_uring (MANYLANE_DRIVER); {}\n",
        short(),
        if cfg!(debug_assertions) { "on" } else { "off" },
        feature_list(),
        enabled.join(" "),
        driver(arguments)
    )
}

/// Returns the driver that lanes would use.
fn driver(arguments: &Arguments) -> String {
    let choice = if arguments.no_epoll {
        Ok(DriverChoice::Only(Kind::IoUring))
    } else {
        DriverChoice::from_environment()
    };
    match choice.map(DriverChoice::settle) {
        Ok((kind, None)) => format!("will use {kind}"),
        Ok((kind, Some(unsuitable))) => format!("will use {kind}, since {unsuitable}"),
        Err(error) => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::{BUILT, NOT_BUILT, feature_list};
    use manylane_config::table::{Action, Status, Table};

    /// Returns true if the keyword is refused in all places, or does not exist.
    fn refused(keyword: &str) -> bool {
        Table::get().named(keyword).all(|row| matches!(row.status, Status::Refused(_)))
    }

    #[test]
    fn features_are_true_where_their_keywords_are_built() {
        for (name, keyword) in [
            ("CPU_AFFINITY", "cpu-map"),
            ("CRYPT_H", "user"),
            ("LIBCRYPT", "user"),
            ("PRCTL", "set-dumpable"),
            ("HAVE_WORKING_TCP_MD5SIG", "tcp-md5sig"),
            ("LINUX_CAP", "setcap"),
            ("LUA", "lua-load"),
            ("OPENSSL", "crt"),
            ("QUIC", "limited-quic"),
            ("SLZ", "compression"),
            ("ZLIB", "compression"),
            ("51DEGREES", "51degrees-data-file"),
            ("DEVICEATLAS", "deviceatlas-json-file"),
            ("WURFL", "wurfl-data-file"),
        ] {
            assert_eq!(BUILT.contains(&name), !refused(keyword), "{name}, {keyword}");
        }
        let exporter = Action::all().find(|action| action.name == "use-service").unwrap();
        assert_eq!(BUILT.contains(&"PROMEX"), exporter.refused.is_none());
        assert!(BUILT.iter().all(|name| !NOT_BUILT.contains(name)));
    }

    #[test]
    fn the_list_of_features_has_the_form_that_scripts_search() {
        let list = feature_list();
        let words: Vec<&str> = list.split(' ').collect();
        assert!(
            words.contains(&"+THREAD")
                && words.contains(&"+OPENSSL")
                && words.len() == BUILT.len() + NOT_BUILT.len()
        );
        assert!(words.is_sorted_by_key(|word| &word[1..]));
    }
}
