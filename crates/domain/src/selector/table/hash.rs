//! The hash that names a table's recorded content. It is computed from the event alone, so that anybody who reads the
//! log can check it.

use sha2::{Digest, Sha256};
use waybill_event::SourceKind;
use waybill_event::selection::TableHash;
use waybill_event::traffic::{SelectionTable, TableCandidate};

/// Begins every encoding; another encoding gets another word.
const DOMAIN: &[u8] = b"waybill selection table 1\n";

/// The first 128 bits of the SHA-256 over the event's content in a fixed binary form: numbers big-endian, texts with
/// their length before them, options with a byte that says whether something follows. The event's own hash is no part.
#[must_use]
pub fn recorded_hash(event: &SelectionTable) -> TableHash {
    let mut digest = Sha256::new_with_prefix(DOMAIN);
    digest.update(event.group.get().to_be_bytes());
    text(&mut digest, &event.model);
    digest.update(event.as_of.as_micros().to_be_bytes());
    length(&mut digest, event.candidates.len());
    for one in &event.candidates {
        candidate(&mut digest, one);
    }
    let first = digest.finalize().iter().take(16).fold(0_u128, |hash, byte| (hash << 8) | u128::from(*byte));
    TableHash(first)
}

fn candidate(digest: &mut Sha256, one: &TableCandidate) {
    let kind = match one.source.kind {
        SourceKind::Channel => b'c',
        SourceKind::Account => b'a',
    };
    let factors = one.factors;
    digest.update([kind]);
    digest.update(one.source.id.to_be_bytes());
    digest.update(one.priority.to_be_bytes());
    digest.update(one.weight.to_be_bytes());
    digest.update([factors.health, factors.latency, factors.load, factors.recovery]);
    text(digest, one.skip.map_or("", |skip| skip.as_str()));
    match one.position {
        None => digest.update([0]),
        Some(position) => {
            digest.update([1]);
            digest.update(position.generation.to_be_bytes());
            digest.update(position.shard.to_be_bytes());
            digest.update(position.sequence.to_be_bytes());
            digest.update(position.index.to_be_bytes());
        }
    }
    match one.own {
        None => digest.update([0]),
        Some((first, last)) => {
            digest.update([1]);
            digest.update(first.to_be_bytes());
            digest.update(last.to_be_bytes());
        }
    }
}

fn text(digest: &mut Sha256, text: &str) {
    length(digest, text.len());
    digest.update(text.as_bytes());
}

fn length(digest: &mut Sha256, length: usize) {
    digest.update(u64::try_from(length).unwrap_or(u64::MAX).to_be_bytes());
}
