//! An HTTP/1 client for the program's own requests, to OCSP responders and ACME authorities. Each request has
//! a connection of its own. The caller sets a deadline.

use super::checks::encrypted;
use super::http_answer::{AnswerReader, HttpAnswer};
use manylane_buf::Chain;
use manylane_http::Method;
use manylane_lanes::Local;
use manylane_net::{ConnectOptions, Connection, Connector, Endpoint};
use manylane_plan::generation::{HttpClientSettings, Question};
use manylane_resolve::{Kind, Name};
use manylane_sched::BlockingPool;
use manylane_sync::Arc;
use manylane_tls::{ClientContext, ServerName, Store};
use std::fmt::Display;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::OnceLock;
use std::time::Duration;

/// Largest number of addresses of a host to try.
const MOST_ADDRESSES: usize = 4;

/// Pause before the addresses of a host are tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Largest number of jobs that wait for the thread.
const WAITING: usize = 64;

/// Returns the pool of one thread for work that may block.
pub(super) fn pool() -> &'static BlockingPool {
    static POOL: OnceLock<BlockingPool> = OnceLock::new();
    POOL.get_or_init(|| BlockingPool::new(1, WAITING))
}

/// Runs `work` with the generation's store on the thread of [`pool`]. `None` if the queue is full, or there
/// is no thread.
pub(super) async fn aside<T: Send + 'static>(
    local: &Local,
    work: impl FnOnce(&Store) -> T + Send + 'static,
) -> Option<T> {
    let store = local.generation.certificates.clone();
    Some(pool().run(move || work(&store)).ok()?.await)
}

fn text(why: impl Display) -> String {
    why.to_string()
}

/// Resolves a host, as `httpclient.resolvers.*` say.
///
/// # Errors
/// A clause that says what is wrong.
pub(super) async fn resolve(local: &Local, host: &str, port: u16) -> Result<Vec<SocketAddr>, String> {
    let name = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    if let Ok(address) = name.parse() {
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let settings = &local.generation.http_client;
    let failed = |why: &dyn Display| format!("'{host}' is not resolved: {why}");
    if settings.no_names {
        return Err(failed(&"'httpclient.resolvers.disabled' is on"));
    }
    if let Some(section) = settings.resolvers {
        let name = Name::parse(&name).map_err(|why| failed(&why))?;
        let question = Arc::new(Question::new(name, settings.family.unwrap_or(Kind::Aaaa)));
        let address = local.look_up(section, question).await;
        let section = &local.generation.resolvers[section].name;
        let address =
            address.ok_or_else(|| failed(&format_args!("the resolvers '{section}' have no address")))?;
        return Ok(vec![SocketAddr::new(address, port)]);
    }
    let resolve = move || (name.as_str(), port).to_socket_addrs().map(Iterator::collect);
    let resolving = pool().run(resolve).map_err(text)?;
    let mut addresses: Vec<SocketAddr> = resolving.await.map_err(|error| failed(&error))?;
    if let Some(family) = settings.family {
        addresses.sort_by_key(|address| address.is_ipv4() != (family == Kind::A));
    }
    Ok(addresses)
}

/// Sends a request to one of the addresses of a host, by TLS if there are settings and a name to verify.
/// Returns the answer, whose body has at most `most` bytes.
///
/// # Errors
/// A clause that says what is wrong.
pub(super) async fn exchange(
    local: &Local,
    addresses: &[SocketAddr],
    tls: Option<(&ClientContext, ServerName<'static>)>,
    method: Method,
    request: &[u8],
    most: usize,
) -> Result<HttpAnswer, String> {
    let mut connection = connect(local, addresses).await?;
    if let Some((context, name)) = tls {
        connection = encrypted(local, context, name, connection).await?;
    }
    let mut bytes = Chain::new();
    bytes.append(request).map_err(text)?;
    connection.send(&mut bytes).await.map_err(text)?;
    receive(&connection, method, most).await
}

/// Connects to the first address that accepts. The caller's deadline bounds the retries, too.
async fn connect(local: &Local, addresses: &[SocketAddr]) -> Result<Connection, String> {
    let HttpClientSettings { connect, retries, .. } = local.generation.http_client;
    let connector = Connector::new(ConnectOptions::default());
    let mut last = "the host has no address".to_owned();
    for retry in 0..=retries {
        if retry > 0 {
            local.here().sleep(PAUSE.min(connect)).await;
        }
        for address in addresses.iter().take(MOST_ADDRESSES) {
            let endpoint = Endpoint::Ip(*address);
            let connecting = connector.connect(&local.io, &endpoint, None, None);
            match local.here().timeout(connect, connecting).await {
                Ok(Ok(connection)) => return Ok(connection),
                Ok(Err(error)) => last = text(error),
                Err(_) => last = format!("{address} did not accept within {} ms", connect.as_millis()),
            }
        }
    }
    Err(last)
}

async fn receive(connection: &Connection, method: Method, most: usize) -> Result<HttpAnswer, String> {
    let mut reader = AnswerReader::new(method, most);
    while let Some(segment) = connection.recv().await.map_err(text)? {
        if let Some(answer) = reader.read(segment)? {
            return Ok(answer);
        }
    }
    reader.end(connection.is_truncated())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::serving;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    #[test]
    fn an_answer_has_at_most_64_kib() {
        assert_eq!([super::super::ocsp::LONGEST_RESPONSE, manylane_acme::LONGEST_ANSWER], [65_536; 2]);
        serving("global\n", |local| async move {
            for (length, framed) in [(65_536, true), (65_537, true), (65_536, false), (65_537, false)] {
                let listener = TcpListener::bind("127.0.0.1:0").unwrap();
                let address = listener.local_addr().unwrap();
                let server = std::thread::spawn(move || {
                    let (mut stream, _) = listener.accept().unwrap();
                    assert_eq!(stream.read(&mut [0; 64]).unwrap(), 4);
                    let field = if framed { format!("Content-Length: {length}\r\n") } else { String::new() };
                    let _ = write!(stream, "HTTP/1.1 200 OK\r\n{field}\r\n{}", "x".repeat(length));
                });
                let answer = exchange(&local, &[address], None, Method::Get, b"GET ", 65_536).await;
                let expected = match length {
                    65_536 => Ok(length),
                    _ => Err("the response has more than 65536 bytes".to_owned()),
                };
                assert_eq!(answer.map(|answer| answer.body.len()), expected, "framed: {framed}");
                server.join().unwrap();
            }
        });
    }
}
