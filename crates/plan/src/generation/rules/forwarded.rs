//! `option forwarded`: the `Forwarded` field of RFC 7239 that a backend adds to requests.

use manylane_expr::{Env, Expression, Scratch, Value, Writer, is_host, put_node_name, put_node_port};
use manylane_http::Known;
use std::net::SocketAddr;

/// Parameters of the field, in its order.
#[derive(Debug)]
pub struct Forwarded {
    /// `proto`
    pub(crate) proto: bool,
    /// `host`
    pub(crate) host: Option<Source>,
    /// `by`
    pub(crate) proxy: Option<Node>,
    /// `for`
    pub(crate) client: Option<Node>,
}

/// Node of the `by` or `for` parameter.
#[derive(Debug)]
pub(crate) struct Node {
    /// Source of the address or name.
    pub(crate) name: Source,
    /// Source of the port; `None` to omit it.
    pub(crate) port: Option<Source>,
}

/// Source of a parameter's value.
#[derive(Debug)]
pub(crate) enum Source {
    /// The connection or the request.
    Usual,
    /// An expression.
    Sample(Box<Expression>),
}

impl Forwarded {
    /// Writes the value of the field; `None` if there is no room.
    pub fn write(&self, env: &Env<'_>, scratch: &mut Scratch<'_>, out: &mut Writer<'_>) -> Option<()> {
        let from = out.len();
        if self.proto {
            out.put(if env.client.tls.is_some() { b"proto=https" } else { b"proto=http" })?;
        }
        if let Some(host) = &self.host {
            begin(b"host=\"", from, out)?;
            host.put_host(env, scratch, out)?;
            out.push(b'"')?;
        }
        for (name, node, address) in
            [(&b"by="[..], &self.proxy, env.client.destination), (b"for=", &self.client, env.client.source)]
        {
            if let Some(node) = node {
                begin(name, from, out)?;
                node.put(env, scratch, out, address)?;
            }
        }
        Some(())
    }
}

/// Begins a parameter. `from` is the position where the element begins.
fn begin(name: &[u8], from: usize, out: &mut Writer<'_>) -> Option<()> {
    if out.len() > from {
        out.push(b';')?;
    }
    out.put(name)
}

impl Source {
    /// Writes the host; an invalid host is left empty.
    fn put_host(&self, env: &Env<'_>, scratch: &mut Scratch<'_>, out: &mut Writer<'_>) -> Option<()> {
        let mut scratch = scratch.reborrow();
        let host = match self {
            Self::Usual => env.request.and_then(|head| head.value(Known::HOST)),
            Self::Sample(expression) => expression.eval_text(env, &mut scratch),
        };
        match host.filter(|host| is_host(host)) {
            Some(host) => out.put(host),
            None => Some(()),
        }
    }
}

impl Node {
    fn put(
        &self,
        env: &Env<'_>,
        scratch: &mut Scratch<'_>,
        out: &mut Writer<'_>,
        address: Option<SocketAddr>,
    ) -> Option<()> {
        // Written to `area` first: the name decides whether quotes are needed.
        let mut area = [0; LONGEST_NODE];
        let mut node = Writer::new(&mut area);
        let ip = || address.map(|address| address.ip().to_canonical().into());
        let named =
            self.name.value(env, &mut scratch.reborrow(), ip, |value| put_node_name(value, &mut node));
        if named.is_none() {
            node = Writer::new(&mut area);
            node.put(b"unknown")?;
        }
        let name = node.written();
        let is_quoted = self.port.is_some() || name.first() == Some(&b'[');
        if is_quoted {
            out.push(b'"')?;
        }
        out.put(name)?;
        if let Some(port) = &self.port {
            let mut area = [0; LONGEST_NODE];
            let mut text = Writer::new(&mut area);
            let usual = || address.map(|address| Value::Int(address.port().into()));
            let written =
                port.value(env, &mut scratch.reborrow(), usual, |value| put_node_port(value, &mut text));
            if written.is_some() {
                out.push(b':')?;
                out.put(text.written())?;
            }
        }
        if is_quoted {
            out.push(b'"')?;
        }
        Some(())
    }
}

/// Limit of a name or a port in the field, in bytes: DNS names have at most 255.
const LONGEST_NODE: usize = 256;

impl Source {
    /// Passes the value of the parameter to `work`; returns `None` if there is no value.
    fn value(
        &self,
        env: &Env<'_>,
        scratch: &mut Scratch<'_>,
        usual: impl FnOnce() -> Option<Value<'static>>,
        work: impl FnOnce(Value<'_>) -> Option<()>,
    ) -> Option<()> {
        match self {
            Self::Usual => work(usual()?),
            Self::Sample(expression) => {
                let mut scratch = scratch.reborrow();
                work(expression.eval(env, &mut scratch).ok()?.value)
            }
        }
    }
}
