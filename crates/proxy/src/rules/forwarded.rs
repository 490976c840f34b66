//! `option forwarded`: the `Forwarded` field of RFC 7239 that a backend adds to requests.

use super::text::Text;
use super::{EvalContext, EvalPhase};
use manylane_expr::{
    Env, Expression, Scratch, Value, Writer, is_forwarded, is_host, put_node_name, put_node_port,
};
use manylane_http::{EditError, Head, Known, List};
use std::net::SocketAddr;

/// Parameters of the field, in its order.
#[derive(Debug)]
pub(crate) struct Forwarded {
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

/// Adds the field to a request. As in HAProxy, the element is appended to the last `Forwarded` field. If an
/// existing field is invalid, the element gets a line of its own: behind an open quote it would become part
/// of the client's text.
pub(crate) fn forward(
    forwarded: &Forwarded,
    eval: &EvalContext<'_>,
    phase: EvalPhase<'_>,
    head: &mut Head,
) -> Result<(), EditError> {
    let mut text = Text::new();
    let (mut last, mut valid) = (None, true);
    while let Some(id) = head.find(b"forwarded", last) {
        valid &= head.field(id).is_some_and(|field| List::new(field.value).all(is_forwarded));
        last = Some(id);
    }
    let last = last.filter(|_| valid);
    let before = last.and_then(|id| head.field(id)).map(|field| field.value);
    let phase = EvalPhase { request: Some(head), ..phase };
    eval.with(phase, |env, scratch| {
        let mut out = Writer::new(scratch.take(super::text::LONGEST));
        let begun = match before {
            Some(before) => out.put(before).and_then(|()| out.push(b',')),
            None => Some(()),
        };
        let written = begun.and_then(|()| forwarded.write(env, scratch, &mut out));
        text.set(written.and_then(|()| out.into_written()))
    })?;
    match last {
        Some(id) => head.replace_value(id, text.bytes()),
        None => head.add_field(b"forwarded", text.bytes()),
    }
}

impl Forwarded {
    fn write(&self, env: &Env<'_>, scratch: &mut Scratch<'_>, out: &mut Writer<'_>) -> Option<()> {
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
            let told =
                port.value(env, &mut scratch.reborrow(), usual, |value| put_node_port(value, &mut text));
            if told.is_some() {
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
