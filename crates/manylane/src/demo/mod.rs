//! `manylane demo`: two origins inside the process, a frontend in front of them, and a page that shows the
//! traffic.

mod page;
mod service;

use crate::jobs::JobThread;
use crate::say;
use crate::supervise::{self, Ending, Work};
use crate::version::BUILD;
use manylane_config::lex::Environment;
use manylane_config::load;
use manylane_config::source::Sources;
use manylane_io::{Choice, Io};
use manylane_net::{Endpoint, HandedOver, ListenOptions, listen};
use manylane_plan::Generation;
use manylane_plan::generation::StartOptions;
use manylane_sync::Arc;
use std::ffi::OsString;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::rc::Rc;

/// Default ports of the frontend and of the page.
const PORTS: [u16; 2] = [8080, 8404];

/// Names of the origins.
const ORIGINS: [&str; 2] = ["blue", "green"];

/// Returns the demo's configuration. A file with these lines and with real servers would do the same.
fn config(port: u16) -> String {
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
    bind 127.0.0.1:{port}
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
    let mut ports = PORTS;
    for (port, word) in ports.iter_mut().zip(words) {
        match word.to_str().and_then(|text| text.parse().ok()).filter(|&port| port > 0) {
            Some(number) => *port = number,
            None => {
                say::alert(format_args!(
                    "demo : expected a port from 1 to 65535, found '{}'; use: manylane demo [port [port of \
                        the page]]",
                    word.display()
                ));
                return ExitCode::from(1);
            }
        }
    }
    match begin(ports) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::alert(format_args!("demo : {error}; other ports: manylane demo 18080 18404"));
            ExitCode::from(1)
        }
    }
}

fn begin([web, page]: [u16; 2]) -> Result<(), String> {
    let mut sources = Sources::new();
    let text = config(web);
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
    let bound = manylane_proxy::bind(&generation, lanes, nobody, &mut none)
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
    let facts = generation.clone();
    let services = move |io: &Io| {
        for (name, socket) in &origins {
            let name = *name;
            service::start(io, socket, Rc::new(move |asked: &service::DemoRequest<'_>| origin(name, asked)))?;
        }
        let shown = facts.clone();
        let text = config(web);
        service::start(
            io,
            &page_socket,
            Rc::new(move |asked: &service::DemoRequest<'_>| page::answer(&shown, &text, asked)),
        )
    };
    let begun = move || greet(web, page);
    let work = Work {
        generation: generation.clone(),
        bound,
        lanes,
        driver: Choice::Auto,
        quiet: true,
        says: JobThread::to_say()?,
        services: Some(Box::new(services)),
        begun: None,
        reload: None, // there is no file
    };
    match supervise::run(work, begun) {
        Ending::Failed(error) => Err(error),
        Ending::Done | Ending::Signal(_) => {
            let served = generation.frontends[0].counts.read_cheap_one(|counts| &counts.requests);
            println!("\n{served} requests were balanced. Bye.");
            Ok(())
        }
    }
}

fn bind(endpoint: &Endpoint) -> Result<manylane_net::Bound, String> {
    let options = ListenOptions { reuse_port: false, ..ListenOptions::default() };
    listen(endpoint, &options).map_err(|error| error.to_string())
}

fn greet(web: u16, page: u16) {
    println!(
        "Manylane is balancing. Two origins, blue and green, live inside of this process.

  balanced      http://127.0.0.1:{web}/
  what happens  http://127.0.0.1:{page}/

Try:
  1. curl http://127.0.0.1:{web}/hello        several times: the origins take turns
  2. curl http://127.0.0.1:{page}/stop/blue    blue goes into maintenance: green takes all; /start/blue \
  brings it back
  3. curl http://127.0.0.1:{page}/config       the configuration that is running; it is HAProxy's language

Each request is a line below. Ctrl-C ends it.
"
    );
}

/// Returns the response of an origin, and prints a line about the request.
fn origin(name: &str, asked: &service::DemoRequest<'_>) -> service::Answer {
    let client = asked.field("x-forwarded-for").unwrap_or("?");
    println!("{client} {} {} -> {name}", asked.method, asked.target);
    service::Answer::text(200, format!("{name} answers {} {}\n", asked.method, asked.target))
}
