//! Log lines on their way to targets: a backend in `mode log` chooses a server for each.

use super::local::Local;
use manylane_balance::{Input, Key};
use manylane_buf::Chain;
use manylane_expr::{ClientInfo, Data, Env, Expression, ServerInfo, StreamInfo, Type, VariableLimits};
use manylane_logs::{Line, Message};
use manylane_plan::clock::now;
use manylane_plan::generation::Backend;

impl Local {
    /// Logs a line to the target with this index, without waiting.
    pub fn log(&self, target: usize, line: &Line<'_>) {
        self.logs.log_among(target, line, |backend| self.log_server(backend, line.text));
    }

    /// Forwards a message of another program.
    pub fn forward_log(&self, target: usize, message: &Message<'_>) {
        self.logs.forward(target, message, |backend| self.log_server(backend, message.text()));
    }

    /// Returns the index of the target that is the server for a line. `None` if all servers are down or, as
    /// in HAProxy, if the key of `balance log-hash` is missing.
    fn log_server(&self, backend: usize, text: &[u8]) -> Option<usize> {
        let backend = self.generation.backends.get(backend)?;
        let key = match &backend.rules.balance {
            Some(expression) => Key::Number(self.log_key(backend, expression, text)?),
            None => Key::None,
        };
        let input = Input { key, ..Input::new(self.here().now()) };
        let index = backend.balancer.pick(&self.reader(), &input).ok()?;
        backend.servers[index.get()].log_target
    }

    /// Returns the hash of the value that the converters of `balance log-hash` make from a line's text.
    fn log_key(&self, backend: &Backend, expression: &Expression, text: &[u8]) -> Option<u32> {
        let generation = &*self.generation;
        let mut bytes = Chain::new();
        bytes.append(text).ok()?;
        let data = Data { bytes: Some(&bytes), complete: true, announced: None, is_body: false };
        let (client, server, stream) = (ClientInfo::default(), ServerInfo::default(), StreamInfo::default());
        let reader = self.reader();
        let env = Env {
            request_data: data,
            variables: manylane_expr::Scopes {
                process: Some(&generation.expressions.process),
                limits: VariableLimits { lanes: self.lanes(), ..generation.process.variable_limits },
                ..manylane_expr::Scopes::default()
            },
            ..Env::without_stream(now, &generation.zone, (&client, &server, &stream), &reader, self)
        };
        // The lane's memory for expressions may be in use for the format that makes this line.
        let mut memory = self.log_memory.borrow_mut();
        let mut scratch = memory.as_mut()?.scratch();
        let value = expression.eval_as(Type::Str, &env, &mut scratch).ok()?;
        Some(backend.balancer.algorithm().hash_function().hash(value.bytes()?))
    }
}
