//! Clients of HTTP/2.

use super::PATIENCE;
use bytes::Bytes;
use h2::client::SendRequest;
use std::net::SocketAddr;

/// Runs what asks, with as long as tests have.
pub fn block<F: Future>(work: F) -> F::Output {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let work = async { tokio::time::timeout(PATIENCE, work).await.expect("it takes too long") };
    runtime.block_on(tokio::task::LocalSet::new().run_until(work))
}

/// A client with a connection of its own.
pub async fn client(address: SocketAddr) -> SendRequest<Bytes> {
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let (client, connection) = h2::client::handshake(stream).await.unwrap();
    tokio::task::spawn_local(connection);
    client
}
