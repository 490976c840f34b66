//! Values with their tags, in three forms: plain, typed, JSON.

use super::Call;
use manylane_balance::{Admin, Index};
use manylane_plan::generation::Backend;
use serde_json::json;
use std::fmt::{self, Write};

/// A value of a field or column.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Text(String),
    Number32(u32),
    Number64(u64),
    Signed(i64),
    Float(f64),
}

impl Value {
    /// A count of HAProxy's 32 bits: 0 follows 4294967295.
    pub(crate) fn count32(count: u64) -> Self {
        Self::Number32(count as u32)
    }

    /// A size or a level of HAProxy's 32 bits: what is larger shows as the largest.
    pub(crate) fn gauge32(level: u64) -> Self {
        Self::Number32(u32::try_from(level).unwrap_or(u32::MAX))
    }

    fn kind(&self) -> &'static str {
        match self {
            Self::Text(_) => "str",
            Self::Number32(_) => "u32",
            Self::Number64(_) => "u64",
            Self::Signed(_) => "s32",
            Self::Float(_) => "flt",
        }
    }

    pub(crate) fn text(&self) -> String {
        self.to_string()
    }

    /// The number of a value without a sign.
    pub(crate) fn unsigned(&self) -> Option<u64> {
        match *self {
            Self::Number32(n) => Some(n.into()),
            Self::Number64(n) => Some(n),
            Self::Text(_) | Self::Signed(_) | Self::Float(_) => None,
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => json!(text),
            Self::Number32(n) => json!(n),
            Self::Number64(n) => json!(n),
            Self::Signed(n) => json!(n),
            // Written as elsewhere: 9, not 9.0.
            Self::Float(n) => trimmed(*n)
                .parse::<serde_json::Number>()
                .map_or(serde_json::Value::Null, serde_json::Value::Number),
        }
    }
}

/// The form in tables.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => f.write_str(text),
            Self::Number32(n) => n.fmt(f),
            Self::Number64(n) => n.fmt(f),
            Self::Signed(n) => n.fmt(f),
            Self::Float(n) => f.write_str(&trimmed(*n)),
        }
    }
}

/// Six decimals, without trailing zeros.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// A column of `show stat`, or a line of `show info`: its number in HAProxy, name, tags and description.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field {
    pub(crate) number: u32,
    pub(crate) name: &'static str,
    /// Origin, nature and scope, one letter each.
    pub(crate) tags: &'static str,
    pub(crate) help: &'static str,
}

impl Field {
    /// `MCP:u64:17`
    pub(crate) fn typed(&self, value: &Value) -> String {
        format!("{}:{}:{}", self.tags, value.kind(), value.text())
    }

    /// The field with HAProxy's tags for `float`.
    pub(crate) fn of_floats(&self) -> Self {
        let tags = match self.name {
            "SslFrontendKeyRate" | "SslFrontendSessionReuse_pct" => "MRP",
            _ => self.tags,
        };
        Self { tags, ..*self }
    }

    /// The field's members of a JSON object.
    pub(crate) fn json(&self, value: &Value) -> serde_json::Map<String, serde_json::Value> {
        let mut letters = self.tags.chars();
        let mut next = || letters.next().unwrap_or('-');
        let origin = match next() {
            'M' => "Metric",
            'S' => "Status",
            'K' => "Key",
            'C' => "Config",
            'P' => "Product",
            _ => "Unknown",
        };
        let nature = match next() {
            'A' => "Age",
            'a' => "Avg",
            'C' => "Counter",
            'D' => "Duration",
            'G' => "Gauge",
            'L' => "Limit",
            'M' => "Max",
            'm' => "Min",
            'N' => "Name",
            'O' => "Output",
            'R' => "Rate",
            'T' => "Time",
            _ => "Unknown",
        };
        let scope = match next() {
            'C' => "Cluster",
            'P' => "Process",
            'S' => "Service",
            'Y' => "System",
            _ => "Unknown",
        };
        let object = json!({
            "field": { "pos": self.number, "name": self.name },
            "processNum": 1,
            "tags": { "origin": origin, "nature": nature, "scope": scope },
            "value": { "type": value.kind(), "value": value.json() },
        });
        match object {
            serde_json::Value::Object(map) => map,
            _ => serde_json::Map::new(), // `json!` above makes an object
        }
    }
}

/// The output form that a command's words ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Form {
    pub(crate) typed: bool,
    pub(crate) json: bool,
    pub(crate) described: bool,
    /// `float`: values with decimals.
    pub(crate) float: bool,
    /// `up`: only servers that are up.
    pub(crate) up: bool,
    /// `no-maint`: no servers in maintenance.
    pub(crate) no_maintenance: bool,
}

impl Form {
    /// True if the server is to be shown.
    pub(crate) fn shows(self, backend: &Backend, index: Index) -> bool {
        let state = backend.balancer.servers()[index].state();
        !(self.up && !state.serves_its_own() || self.no_maintenance && state.admin() == Admin::Maintenance)
    }

    /// Parses `words`. If one is not in `known`, replies with an error and returns `None`.
    pub(crate) fn read(call: &mut Call<'_, '_>, words: &[String], known: &[&str]) -> Option<Self> {
        let mut form = Self::default();
        for word in words {
            if !known.contains(&&**word) {
                let mut text = String::new();
                let _ = write!(text, "Expected one of {}, found '{word}'.", known.join(", "));
                call.error(&text);
                return None;
            }
            match &**word {
                "typed" => form.typed = true,
                "json" => form.json = true,
                "desc" => form.described = true,
                "float" => form.float = true,
                "up" => form.up = true,
                _ => form.no_maintenance = true,
            }
        }
        Some(form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_of_32_bits_goes_on_from_0_and_a_gauge_stays_at_its_largest() {
        let beyond = (1 << 32) + 4;
        assert_eq!([Value::count32(beyond), Value::gauge32(beyond)], [4, u32::MAX].map(Value::Number32));
    }
}
