//! `manylane demo`: two origins inside the process, a frontend in front of them, and a page that shows the
//! traffic.

mod certificate;
mod page;
mod service;

use crate::jobs::JobThread;
use crate::say;
use crate::supervise::{self, Ending, StopServices, Work};
use crate::version::BUILD;
use certificate::Certificates;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_io::{DriverChoice, Io};
use manylane_net::{Endpoint, HandedOver, ListenOptions, listen};
use manylane_plan::Generation;
use manylane_plan::generation::StartOptions;
use manylane_sync::Arc;
use std::ffi::OsString;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::rc::Rc;

/// Default ports of the frontend, of the page, and with `--https` of https.
const PORTS: [u16; 3] = [8080, 8404, 8443];

/// The word that adds the port of https.
const HTTPS: &str = "--https";

/// The port of https, and the file with the authority of its certificate.
#[derive(Clone)]
struct Https {
    port: u16,
    authority: PathBuf,
}

impl Https {
    /// A request that trusts the authority.
    fn try_it(&self) -> String {
        format!("curl --cacert {} https://localhost:{}/hello", self.authority.display(), self.port)
    }
}

/// Names of the origins.
const ORIGINS: [&str; 2] = ["blue", "green"];

/// Returns the demo's configuration. A file with these lines and with real servers would do the same.
fn config(port: u16, https: Option<(u16, &Certificates)>) -> String {
    let https = https.map(|(port, certificates)| {
        format!("\n    bind 127.0.0.1:{port} ssl crt '{}'", certificates.own().display())
    });
    let https = https.unwrap_or_default();
    format!(
        "global
    maxconn 1000

defaults
    mode http
    timeout client 30s
    timeout connect 5s
    timeout server 30s
    option forwardfor
    option redispatch

frontend web
    bind 127.0.0.1:{port}{https}
    http-request set-header x-demo yes
    default_backend colours

backend colours
    balance roundrobin
    server blue local@demo-blue
    server green local@demo-green
"
    )
}

/// Runs until it is interrupted.
pub(crate) fn run(words: &[OsString]) -> ExitCode {
    say::introduced();
    let (mut ports, mut given, mut secure) = (PORTS, 0, false);
    for word in words {
        let text = word.to_str().unwrap_or_default();
        if text == HTTPS {
            secure = true;
            continue;
        }
        match (ports.get_mut(given), text.parse()) {
            (Some(port), Ok(number)) if number > 0 => *port = number,
            (port, _) => {
                let expected = if port.is_some() { "a port from 1 to 65535" } else { "at most three ports" };
                say::alert(format_args!(
                    "demo : expected {expected}, found '{}'; use: manylane demo [{HTTPS}] [port [port of the \
                     page [port of https]]]",
                    word.display()
                ));
                return ExitCode::from(1);
            }
        }
        given += 1;
    }
    if given == PORTS.len() && !secure {
        say::alert(format_args!("demo : the third port expects '{HTTPS}' beside it, found none"));
        return ExitCode::from(1);
    }
    match begin(ports, secure) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let others = if secure { "--https 18080 18404 18443" } else { "18080 18404" };
            say::alert(format_args!("demo : {error}; other ports: manylane demo {others}"));
            ExitCode::from(1)
        }
    }
}

fn begin([web, page, https]: [u16; 3], secure: bool) -> Result<(), String> {
    let mut sources = Sources::new();
    let certificates = if secure { Some(Certificates::make()?) } else { None };
    let text = config(web, certificates.as_ref().map(|certificates| (https, certificates)));
    let https = certificates.as_ref().map(|own| Https { port: https, authority: own.authority() });
    sources.add("demo.cfg", text.as_str()).map_err(|error| error.to_string())?;
    let mut loaded = load(&sources, &BUILD, Environment::new(), false);
    let generation = Generation::build(&loaded.config, StartOptions::default(), &mut loaded.found);
    if loaded.found.errors() > 0 {
        return Err(loaded.found.render(&sources, std::process::id()));
    }
    let generation = Arc::new(generation);
    let lanes = std::thread::available_parallelism().map_or(1, usize::from).min(4);
    let nobody = |_, name: &str| Err(format!("there is no '{name}' here"));
    let mut none = HandedOver::default();
    let bound = manylane_lanes::bind(&generation, lanes, nobody, &mut none)
        .map_err(|failures| failures.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))?;
    let begun = none.begin(false).map_err(|error| error.to_string())?;
    if let Some(error) = begun.complete() {
        return Err(error.to_string());
    }
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, page));
    // All sockets listen before any text is printed, so that its reader can connect.
    let page_socket = bind(&Endpoint::Ip(address))?;
    let origins = ORIGINS
        .map(|name| bind(&Endpoint::Local(format!("demo-{name}").into())).map(|socket| (name, socket)));
    let [blue, green] = origins;
    let origins = [blue?, green?];
    let (shared, on_page) = (generation.clone(), https.clone());
    let services = move |io: &Io| {
        for (name, socket) in &origins {
            let name = *name;
            service::start(
                io,
                socket,
                Rc::new(move |request: &service::DemoRequest<'_>| origin(name, request)),
            )?;
        }
        let (shown, text) = (shared.clone(), text.clone());
        let hint = on_page.as_ref().map(Https::try_it);
        service::start(
            io,
            &page_socket,
            Rc::new(move |request: &service::DemoRequest<'_>| {
                page::answer(&shown, &text, hint.as_deref(), request)
            }),
        )?;
        Ok(Box::new(|| {}) as StopServices)
    };
    let begun = move || greet(web, page, https.as_ref());
    let work = Work {
        generation: generation.clone(),
        bound,
        lanes,
        driver: DriverChoice::Auto,
        or_epoll: true,
        quiet: true,
        says: JobThread::to_say()?,
        services: Some(Box::new(services)),
        begun: None,
        reload: None, // there is no file
        joined: None,
    };
    match supervise::run(work, begun) {
        Ending::Failed(error) => Err(error),
        Ending::Done | Ending::Signal(_) => {
            let served = generation.frontends[0].counts.read_cheap_one(|counts| &counts.requests);
            print(&format!("\n{served} requests were balanced. Bye.\n"));
            Ok(())
        }
    }
}

fn bind(endpoint: &Endpoint) -> Result<manylane_net::Bound, String> {
    let options = ListenOptions { reuse_port: false, ..ListenOptions::default() };
    listen(endpoint, &options).map_err(|error| error.to_string())
}

fn greet(web: u16, page: u16, https: Option<&Https>) {
    let (secure, try_it) = match https {
        None => (String::new(), String::new()),
        Some(https) => (
            format!("\n  over TLS      https://localhost:{}/", https.port),
            format!(
                "  4. {}\n     the authority in that file has signed the certificate; a browser that imports \
                 it trusts this run alone\n",
                https.try_it()
            ),
        ),
    };
    print(&format!(
        "Manylane is balancing. Two origins, blue and green, live inside of this process.

  balanced      http://127.0.0.1:{web}/{secure}
  what happens  http://127.0.0.1:{page}/

Try:
  1. curl http://127.0.0.1:{web}/hello        several times: the origins take turns
  2. curl http://127.0.0.1:{page}/stop/blue    blue goes into maintenance: green takes all; /start/blue \
  brings it back
  3. curl http://127.0.0.1:{page}/config       the configuration that is running; it is HAProxy's language
{try_it}
Each request is a line below. Ctrl-C ends it.

"
    ));
}

/// Writes to standard output, whose reader may have left, as `head` does: the demonstration serves on.
fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

/// Returns the response of an origin, and prints a line about the request.
fn origin(name: &str, request: &service::DemoRequest<'_>) -> service::Answer {
    let client = request.field("x-forwarded-for").unwrap_or("?");
    print(&format!("{client} {} {} -> {name}\n", request.method, request.target));
    service::Answer::text(200, format!("{name} answers {} {}\n", request.method, request.target))
}
