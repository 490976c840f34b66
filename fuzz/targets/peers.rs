//! Input from a peer: greetings, messages, and a whole conversation with a section.
#![no_main]

use manylane_expr::{DataType, Type};
use manylane_peers::{Message, PeerSpec, Section, SharedTable, Status, read_hello};
use manylane_stick::{Data, Spec, Table};
use manylane_sync::Arc;

/// Entries of each table.
const SIZE: u32 = 100;

/// A table for each key type, with all data types.
fn tables() -> Vec<SharedTable> {
    let data: Vec<Data> = DataType::ALL
        .into_iter()
        .filter(|kind| !matches!(kind, DataType::Gpt0 | DataType::Gpc0 | DataType::Gpc0Rate))
        .map(|kind| Data {
            kind,
            count: if kind.is_array() { 3 } else { 1 },
            period: if kind.is_rate() { 1_000 } else { 0 },
        })
        .collect();
    [("i", Type::Int), ("4", Type::Ipv4), ("6", Type::Ipv6), ("s", Type::Str), ("b", Type::Bin)]
        .into_iter()
        .map(|(name, key)| {
            let spec = Spec {
                key,
                key_bytes: 12,
                size: SIZE,
                expire: 1_000,
                nopurge: false,
                data: data.clone(),
                bytes_factor: std::num::NonZeroU32::MIN,
                turns: false,
            };
            SharedTable {
                name: name.into(),
                table: Arc::new(Table::new(spec)),
                receives_only: false,
                write_to: None,
            }
        })
        .collect()
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    if let Ok(Some((_, used))) = read_hello(data, "one") {
        assert!(used <= data.len());
    }
    let _ = Status::read(data);
    // A message that is understood reads back the same after writing.
    if let Ok(Some((message, _))) = Message::read(data)
        && message != Message::Unknown
        && data.len() < 8_192
    {
        let mut bytes = Vec::new();
        message.write(&mut bytes);
        assert_eq!(Message::read(&bytes), Ok(Some((message, bytes.len()))));
    }
    let tables = tables();
    let specs = [false, true].map(|is_local| PeerSpec { is_local, shard: None });
    let mut section = Section::new(tables.clone(), specs, false, 0);
    section.begin(0, 0);
    let mut at = 0;
    for (now, part) in data.chunks(97).enumerate() {
        let end = at.max(now * 97) + part.len();
        let end = end.min(data.len());
        match section.receive(0, &data[at..end], now as u64 * 100) {
            Ok(used) => at += used,
            Err(_) => break,
        }
        section.tick(now as u64 * 100);
        let mut out = Vec::new();
        for _ in 0..8 {
            if !section.transmit(0, now as u64 * 100, &mut out) {
                break;
            }
        }
    }
    section.end(0, 1_000);
    assert!(tables.iter().all(|shared| shared.table.used() <= SIZE));
    let _ = section.report(1_000);
});
