//! Cases over TLS: the same configuration with `ssl crt` on client listeners, and a client that encrypts the
//! same bytes.
//!
//! A case is skipped if it cannot run so: [`config`] says why.

use rcgen::{CertificateParams, KeyPair};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, LazyLock};

/// Name of the file with the certificate and the key, in the case's folder.
pub const FILE: &str = "of-the-test.pem";

/// Name in the certificate, for which clients ask.
const NAME: &str = "localhost";

struct Identity {
    pem: String,
    client: Arc<ClientConfig>,
}

static IDENTITY: LazyLock<Identity> = LazyLock::new(|| {
    let key = KeyPair::generate().unwrap();
    let certificate = CertificateParams::new(vec![NAME.to_owned()]).unwrap().self_signed(&key).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(certificate.der().clone()).unwrap();
    let mut client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.resumption = rustls::client::Resumption::disabled();
    Identity { pem: certificate.pem() + &key.serialize_pem(), client: Arc::new(client) }
});

/// Contents of [`FILE`].
pub fn pem() -> &'static str {
    &IDENTITY.pem
}

/// Adds `ssl crt` to the listeners of clients.
///
/// # Errors
/// The reason why the case cannot run over TLS.
pub fn config(text: &str) -> Result<String, &'static str> {
    let mut out = String::new();
    let mut listens = false;
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        if line.contains("accept-proxy") || line.contains("netscaler") || words.contains(&"expect-proxy") {
            return Err("a header stands before the handshake");
        }
        out += line.trim_end();
        if words.first() == Some(&"bind") && line.contains("${FRONT") {
            if words.contains(&"ssl") {
                return Err("it has listeners with TLS itself");
            }
            listens = true;
            out += &format!(" ssl crt \"${{DIR}}/{FILE}\"");
        }
        out.push('\n');
    }
    if listens { Ok(out) } else { Err("it has no listener of clients") }
}

/// The client's end of a connection.
#[derive(Debug)]
pub enum Stream {
    /// Bytes as they are.
    Clear(TcpStream),
    /// Encrypted.
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    /// The handshake has failed: each read fails so.
    Failed(io::ErrorKind),
    /// The end has been read. Only one of the programs may have sent `close_notify`; without one the socket
    /// would be read again, and tell of a reset.
    Ended,
}

impl Stream {
    /// Does a handshake. A reset counts as an end: a program that closes the connection before it reads the
    /// hello causes the one or the other, by chance.
    pub fn tls(mut socket: TcpStream) -> Self {
        let name = ServerName::try_from(NAME).unwrap();
        let mut tls = ClientConnection::new(IDENTITY.client.clone(), name).unwrap();
        while tls.is_handshaking() {
            use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
            match tls.complete_io(&mut socket).map_err(|error| error.kind()) {
                Ok(_) => {}
                Err(BrokenPipe | ConnectionReset | UnexpectedEof) => return Self::Ended,
                Err(kind) => return Self::Failed(kind),
            }
        }
        Self::Tls(Box::new(StreamOwned::new(tls, socket)))
    }

    /// Ends the sending side. It may be closed already.
    pub fn shutdown(&mut self) {
        match self {
            Self::Clear(socket) => _ = socket.shutdown(Shutdown::Write),
            Self::Tls(tls) => {
                tls.conn.send_close_notify();
                let _ = tls.flush();
                let _ = tls.sock.shutdown(Shutdown::Write);
            }
            Self::Failed(_) | Self::Ended => {}
        }
    }
}

impl Read for Stream {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = match self {
            Self::Clear(socket) => return socket.read(into),
            Self::Tls(tls) => tls.read(into),
            Self::Failed(kind) => Err((*kind).into()),
            Self::Ended => Ok(0),
        };
        match read {
            // With an error, the end has come without `close_notify`.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => *self = Self::Ended,
            Ok(0) => *self = Self::Ended,
            read => return read,
        }
        Ok(0)
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Clear(socket) => socket.write(bytes),
            Self::Tls(tls) => tls.write(bytes),
            Self::Failed(kind) => Err((*kind).into()),
            Self::Ended => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Clear(socket) => socket.flush(),
            Self::Tls(tls) => tls.flush(),
            Self::Failed(_) | Self::Ended => Ok(()),
        }
    }
}
