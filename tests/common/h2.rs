//! HTTP/2 clients and servers.

use super::TIMEOUT;
use bytes::Bytes;
use h2::client::SendRequest;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// Runs `work` with the time limit of tests.
pub fn block<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async { tokio::time::timeout(TIMEOUT, work).await.expect("it takes too long") };
    runtime.block_on(tokio::task::LocalSet::new().run_until(work))
}

/// A client with its own connection.
pub async fn client(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::task::spawn_local(connection);
    client
}

/// A server on its own thread. `connection` gets each connection and its number, from 1.
pub fn serve<F>(connection: impl Fn(TcpStream, usize) -> F + Send + 'static) -> SocketAddr
where
    F: Future<Output: 'static> + 'static,
{
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let serve = async move {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            for number in 1.. {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::task::spawn_local(connection(stream, number));
            }
        };
        runtime.block_on(tokio::task::LocalSet::new().run_until(serve));
    });
    address
}
