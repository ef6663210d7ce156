//! Records of the outbox's files: length of the event, checksum of all that follows, ordinal, time of the append, event.

use waybill_event::LogTime;

/// Bytes before the event: length (4), CRC32 (4), ordinal (8), time (8), all little-endian.
pub(super) const HEADER_BYTES: usize = 24;

/// The largest event that an outbox takes; a message with it stays below what the log's store accepts by default
/// (1 MiB).
pub(super) const MAX_EVENT_BYTES: usize = 900 * 1024;

/// A record, borrowed from the bytes that were read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record<'a> {
    pub(super) ordinal: u64,
    pub(super) at: LogTime,
    pub(super) event: &'a [u8],
}

impl Record<'_> {
    /// Bytes that it takes in the file.
    pub(super) const fn size(&self) -> usize {
        HEADER_BYTES + self.event.len()
    }
}

/// What stands at the beginning of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Parsed<'a> {
    /// A whole record.
    Whole(Record<'a>),
    /// The beginning of a record of which this many bytes are needed in all.
    Part(usize),
    /// Nothing has been written here.
    Blank,
    /// Bytes that are no record: a write that didn't finish, or damage.
    Torn,
}

/// Appends a record to `out`; `write` appends the event.
pub(super) fn push(out: &mut Vec<u8>, ordinal: u64, at: LogTime, write: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_BYTES]);
    write(out);
    let event = out.get(start + HEADER_BYTES..).unwrap_or_default();
    let length = u32::try_from(event.len()).unwrap_or(u32::MAX);
    let checksum = checksum(ordinal, at, event);
    let both = u64::from(checksum) << 32 | u64::from(length);
    let header = [both.to_le_bytes(), ordinal.to_le_bytes(), at.as_micros().to_le_bytes()];
    if let Some(slot) = out.get_mut(start..start + HEADER_BYTES) {
        slot.copy_from_slice(header.as_flattened());
    }
}

/// Reads the record at the beginning of `bytes`.
pub(super) fn parse(bytes: &[u8]) -> Parsed<'_> {
    let Some((header, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        let blank = bytes.iter().take(4).all(|byte| *byte == 0);
        return if blank && bytes.len() >= 4 { Parsed::Blank } else { Parsed::Part(HEADER_BYTES) };
    };
    let length = u32::from_le_bytes(field(header, 0));
    if length == 0 {
        return Parsed::Blank;
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length > MAX_EVENT_BYTES {
        return Parsed::Torn;
    }
    let Some(event) = rest.get(..length) else {
        return Parsed::Part(HEADER_BYTES + length);
    };
    let ordinal = u64::from_le_bytes(field(header, 8));
    let at = LogTime::from_micros(i64::from_le_bytes(field(header, 16)));
    if checksum(ordinal, at, event) != u32::from_le_bytes(field(header, 4)) {
        return Parsed::Torn;
    }
    Parsed::Whole(Record { ordinal, at, event })
}

/// The whole records at the beginning of `bytes`.
pub(super) fn records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || match parse(bytes) {
        Parsed::Whole(record) => {
            bytes = bytes.get(record.size()..).unwrap_or_default();
            Some(record)
        }
        Parsed::Part(_) | Parsed::Blank | Parsed::Torn => None,
    })
}

/// The records in bytes that this process has written itself and kept in memory: nothing can have happened to them, so
/// that their checksums aren't computed again.
pub(super) fn own_records(mut bytes: &[u8]) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let (header, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
        let length = usize::try_from(u32::from_le_bytes(field(header, 0))).ok()?;
        let (event, rest) = rest.split_at_checked(length)?;
        bytes = rest;
        let at = LogTime::from_micros(i64::from_le_bytes(field(header, 16)));
        Some(Record { ordinal: u64::from_le_bytes(field(header, 8)), at, event })
    })
}

fn field<const N: usize>(header: &[u8; HEADER_BYTES], at: usize) -> [u8; N] {
    header.get(at..at + N).and_then(|bytes| bytes.try_into().ok()).unwrap_or([0; N])
}

fn checksum(ordinal: u64, at: LogTime, event: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update([ordinal.to_le_bytes(), at.as_micros().to_le_bytes()].as_flattened());
    hasher.update(event);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn two() -> Vec<u8> {
        let mut out = Vec::new();
        push(&mut out, 1, LogTime::from_micros(7), |out| out.extend_from_slice(b"{\"a\":1}"));
        push(&mut out, 2, LogTime::from_micros(8), |out| out.extend_from_slice(b"{\"b\":2}"));
        out
    }

    #[test]
    fn records_read_back_up_to_where_they_are_torn() {
        let whole = two();
        let read: Vec<_> = records(&whole).map(|r| (r.ordinal, r.at.as_micros(), r.event.to_vec())).collect();
        assert_eq!(read, [(1, 7, b"{\"a\":1}".to_vec()), (2, 8, b"{\"b\":2}".to_vec())]);
        assert!(own_records(&whole).eq(records(&whole)));
        for cut in 0..whole.len() {
            let expected = usize::from(cut >= HEADER_BYTES + 7);
            assert_eq!(records(&whole[..cut]).count(), expected, "cut at {cut}");
        }
    }

    #[test]
    fn a_flipped_bit_is_noticed_anywhere_after_the_length() {
        let whole = two();
        for at in 4..HEADER_BYTES + 7 {
            let mut bad = whole.clone();
            bad[at] ^= 1;
            assert_eq!(parse(&bad), Parsed::Torn, "byte {at}");
        }
        assert_eq!(parse(&[0; 64]), Parsed::Blank);
    }
}
