//! Runs a case with one program.

use crate::TIMEOUT;
use crate::case::{Case, Record, Step};
use crate::cli;
use crate::client::{Client, Got};
use crate::dns::Dns;
use crate::http2;
use crate::origin::{Origin, RecordedRequest};
use crate::program::{Program, Which, checked};
use crate::syslog::Syslog;
use crate::talker::Talker;
use crate::tls;
use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
use std::cell::LazyCell;
use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::time::Instant;

/// Results of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Results of each step, and at the end of each connection what arrived later.
    pub answers: Vec<Vec<Got>>,
    /// Bytes that arrived after the client had finished, by connection.
    pub rest: Vec<Vec<u8>>,
    /// Requests at each origin.
    pub requests: BTreeMap<String, Vec<RecordedRequest>>,
    /// Data that each talker received, by connection.
    pub heard: BTreeMap<String, Vec<Vec<u8>>>,
    /// Commands and responses of the run-time socket.
    pub cli: Vec<(String, String)>,
    /// Log lines as received.
    pub log: Vec<String>,
    /// Exit code; `None` after a signal.
    pub exit: Option<i32>,
    /// Standard error of the program.
    pub errors: String,
}

/// Starts the program with the case's configuration, runs the steps, and ends it by a soft stop, so that all
/// log lines have been sent. `requests` replaces the case's requests by HTTP/2 ones; with `over_tls` the
/// client encrypts what it sends.
///
/// # Panics
/// If the setup fails, or the program does not end.
pub fn run(
    case: &Case,
    which: &Which,
    mut requests: Option<VecDeque<http2::Request>>,
    over_tls: bool,
) -> Outcome {
    let folder = tempdir(case);
    if over_tls {
        std::fs::write(folder.path.join(tls::FILE), tls::pem()).unwrap();
    }
    for (name, text) in &case.files {
        std::fs::write(folder.path.join(name), text).unwrap();
    }
    let config = folder.path.join("case.cfg");
    std::fs::write(&config, &case.config).unwrap();

    let mut environment = vec![("DIR".to_owned(), folder.path.display().to_string())];
    let mut listeners = Vec::new();
    let mut fronts = BTreeMap::new();
    for name in case.names("FRONT") {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        fronts.insert(name.clone(), listener.local_addr().unwrap());
        listeners.push((name, listener));
    }
    let mut origins = BTreeMap::new();
    for name in case.names("ORIGIN_") {
        let short = name["ORIGIN_".len()..].to_owned();
        let origin = Origin::start(&short, case.origins.get(&short).cloned().unwrap_or_default());
        environment.push((name, origin.address().to_string()));
        origins.insert(short, origin);
    }
    let mut talkers = BTreeMap::new();
    for (name, parts) in &case.talkers {
        let talker = Talker::start(parts.clone());
        environment.push((format!("TALK_{name}"), talker.address().to_string()));
        environment.push((format!("PORT_{name}"), talker.address().port().to_string()));
        talkers.insert(name.clone(), talker);
    }
    // Bound and not listening: connections are refused, and no other program gets the port.
    let dead = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&dead, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = SocketAddr::try_from(getsockname(&dead).unwrap()).unwrap();
    environment.push(("DEAD".to_owned(), address.to_string()));
    let mut syslog = Syslog::new();
    environment.push(("LOG".to_owned(), syslog.address().to_string()));

    let names = LazyCell::new(Dns::new);
    if !case.names("DNS").is_empty() {
        environment.push(("DNS".to_owned(), names.address().to_string()));
    }
    // The first names are set before the program starts.
    let first = case.steps.iter().take_while(|step| matches!(step, Step::Names { .. })).count();
    let (zone, steps) = case.steps.split_at(first);
    for step in zone {
        if let Step::Names { code, records } = step {
            tell(&names, *code, records);
        }
    }

    // A restarted program gets the same listeners.
    let restarts = steps.iter().any(|step| matches!(step, Step::Restart { .. }));
    let kept: Vec<(String, TcpListener)> = match restarts {
        true => listeners.iter().map(|(name, own)| (name.clone(), own.try_clone().unwrap())).collect(),
        false => Vec::new(),
    };
    let start = |which: &Which, listeners| {
        let path = which.path().expect("the caller looked");
        let arguments = ["-db", "-f", config.to_str().expect("the folder's name is ASCII")];
        let driver = checked().filter(|_| *which == Which::Checked).map(|(driver, _)| driver);
        let driver = driver.map(|driver| ("MANYLANE_DRIVER".to_owned(), driver));
        let environment: Vec<_> = environment.iter().cloned().chain(driver).collect();
        Program::start(&path, &arguments, &environment, listeners)
    };
    let mut which = which.clone();
    let mut program = start(&which, listeners);
    let mut said = String::new();
    let mut waited: BTreeMap<&String, usize> = BTreeMap::new();

    let mut answers = Vec::new();
    let mut rest = Vec::new();
    let mut cli = Vec::new();
    let mut client: Option<Client> = None;
    let mut client_of_2: Option<http2::Client> = None;
    let directory = folder.path.display().to_string();
    for step in steps {
        match step {
            Step::Connect(name) => {
                rest.extend(client.take().map(Client::finish));
                let to = fronts.get(name).unwrap_or_else(|| panic!("the configuration has no ${{{name}}}"));
                if requests.is_some() {
                    client_of_2.take().into_iter().for_each(http2::Client::finish);
                    client_of_2 = http2::Client::connect(*to);
                } else {
                    client = Client::connect(*to, over_tls);
                }
            }
            Step::Ask { at, commands, compared } => {
                let socket = folder.path.join(at);
                for command in commands {
                    let named = environment.iter();
                    let requested = named.fold(command.clone(), |text, (name, value)| {
                        text.replace(&format!("${{{name}}}"), value)
                    });
                    let answer = cli::ask(&socket, &requested);
                    let answer = answer.replace(&directory, "${DIR}");
                    cli.push((command.clone(), cli::compared(&answer, compared)));
                }
            }
            Step::Until { command, text, there } => {
                let command = command.replace("${DIR}", &directory);
                cli::ask_until(&folder.path.join("cli"), &command, text, *there);
            }
            Step::Logged(text) => syslog.wait(text),
            Step::Logs(count, text) => syslog.wait_for(*count, text),
            Step::Save { command, file } => {
                let answer = cli::ask(&folder.path.join("cli"), command);
                std::fs::write(folder.path.join(file), answer).unwrap();
            }
            Step::Restart { other } => {
                rest.extend(client.take().map(Client::finish));
                client_of_2.take().into_iter().for_each(http2::Client::finish);
                program.signal(rustix::process::Signal::USR1);
                let (status, errors) = program.wait();
                assert_eq!(status.code(), Some(0), "{which:?} before its restart: {errors}");
                said += &errors;
                if *other {
                    which = which.other();
                }
                let again = kept.iter().map(|(name, own)| (name.clone(), own.try_clone().unwrap())).collect();
                program = start(&which, again);
            }
            Step::Names { code, records } => tell(&names, *code, records),
            Step::Requested(name) => names.is_dealt_with(name),
            Step::RecordedRequest(name) => {
                let wanted = waited.entry(name).or_insert(0);
                *wanted += 1;
                let origin = origins.get(name).unwrap_or_else(|| panic!("there is no ORIGIN_{name}"));
                let until = Instant::now() + TIMEOUT;
                while origin.requests().len() < *wanted {
                    assert!(Instant::now() < until, "{name} has seen {:?}", origin.requests());
                    crate::look_again();
                }
            }
            Step::Send { answers: count, .. } if requests.is_some() => {
                let request = requests.as_mut().and_then(VecDeque::pop_front).expect("each step has one");
                answers.push(match client_of_2.as_mut() {
                    Some(client) => {
                        client.send(&request);
                        (0..*count).map(|_| client.answer()).collect()
                    }
                    None => vec![Got::Refused; *count],
                });
            }
            Step::Send { bytes, answers: count, to_head } => {
                let Some(client) = client.as_mut() else {
                    answers.push(vec![Got::Refused; *count]);
                    continue;
                };
                client.send(bytes);
                answers.push((0..*count).map(|_| client.answer(*to_head)).collect());
            }
        }
    }
    rest.extend(client.take().map(Client::finish));
    client_of_2.take().into_iter().for_each(http2::Client::finish);
    program.signal(rustix::process::Signal::USR1);
    let (status, errors) = program.wait();
    Outcome {
        answers,
        rest,
        requests: origins.into_iter().map(|(name, origin)| (name, origin.finish())).collect(),
        heard: talkers
            .into_iter()
            .map(|(name, talker)| {
                let mut heard = talker.heard();
                if case.unordered {
                    heard.sort();
                }
                (name, heard)
            })
            .collect(),
        cli,
        log: match case.unordered {
            true => {
                let mut lines = syslog.lines();
                lines.sort_by_cached_key(|line| crate::compare::log_line(line));
                lines
            }
            false => syslog.lines(),
        },
        exit: status.code(),
        errors: said + &errors,
    }
}

/// Sets the answers of the name server.
fn tell(names: &Dns, code: u8, records: &BTreeMap<String, Record>) {
    for (name, record) in records {
        match record {
            Record::Addresses(all) => {
                let all: Vec<&str> = all.iter().map(String::as_str).collect();
                names.addresses_and_code(name, &all, code);
            }
            Record::Service(all) => {
                let all: Vec<_> = all
                    .iter()
                    .map(|(weight, port, target, address)| (*weight, *port, &**target, address.as_deref()))
                    .collect();
                names.service(name, &all);
            }
        }
    }
    names.code(code);
}

struct Folder {
    path: std::path::PathBuf,
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path); // leftovers are in the system's temporary folder
    }
}

fn tempdir(case: &Case) -> Folder {
    use std::sync::atomic::{AtomicUsize, Ordering};
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = case.path.file_stem().and_then(|name| name.to_str()).unwrap_or("case");
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("manylane-{name}-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    Folder { path }
}
