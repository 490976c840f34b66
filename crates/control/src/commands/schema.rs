//! `show schema json`: the JSON schema (draft 4) of `show info json` and `show stat json`.

use serde_json::{Value, json};

/// The schema of a list of objects in which all `members` are required.
fn list(title: &str, members: Value) -> Value {
    let required: Vec<&String> =
        members.as_object().map_or_else(Vec::new, |members| members.keys().collect());
    json!({
        "title": title,
        "type": "array",
        "items": { "type": "object", "required": required, "properties": members },
    })
}

/// The schema of a string that is one of `words`.
fn one_of(words: &[&str]) -> Value {
    json!({ "type": "string", "enum": words })
}

/// The schema of a tagged value.
fn typed(name: &str, value: &Value) -> Value {
    json!({
        "type": "object",
        "required": ["type", "value"],
        "properties": { "type": one_of(&[name]), "value": value },
    })
}

pub(crate) fn text() -> String {
    let integer = |least: i64, most: i64| json!({ "type": "integer", "minimum": least, "maximum": most });
    let count = json!({ "type": "integer", "minimum": 0 });
    let tags = json!({
        "type": "object",
        "required": ["origin", "nature", "scope"],
        "properties": {
            "origin": one_of(&["Metric", "Status", "Key", "Config", "Product", "Unknown"]),
            "nature": one_of(&[
                "Age", "Avg", "Counter", "Duration", "Gauge", "Limit", "Max", "Min", "Name", "Output",
                    "Rate", "Time", "Unknown",
            ]),
            "scope": one_of(&["Cluster", "Process", "Service", "System", "Unknown"]),
        },
    });
    let field = json!({
        "type": "object",
        "required": ["pos", "name"],
        "properties": { "pos": count, "name": { "type": "string" } },
    });
    let value = json!({
        "oneOf": [
            typed("s32", &integer(i32::MIN.into(), i32::MAX.into())),
            typed("u32", &integer(0, u32::MAX.into())),
            typed("u64", &count),
            typed("flt", &json!({ "type": "number", "minimum": 0 })),
            typed("str", &json!({ "type": "string" })),
        ],
    });
    let of = |name: &str| json!({ "$ref": format!("#/definitions/{name}") });
    let info = json!({
        "field": of("field"), "processNum": of("processNum"), "tags": of("tags"), "value": of("value"),
    });
    let stat = json!({
        "objType": one_of(&["Frontend", "Backend", "Listener", "Server"]), "proxyId": count, "id": count,
        "field": of("field"), "processNum": of("processNum"), "tags": of("tags"), "value": of("value"),
    });
    let schema = json!({
        "$schema": "http://json-schema.org/draft-04/schema#",
        "oneOf": [
            list("Info", info),
            { "title": "Stat", "type": "array", "items": list("Line", stat) },
        ],
        "definitions": {
            "field": field,
            "processNum": { "type": "integer", "minimum": 1 },
            "tags": tags,
            "value": value,
        },
    });
    format!("{schema}\n")
}
