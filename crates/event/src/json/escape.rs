//! Texts and numbers as JSON has them.

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Whether a byte can't stand in a JSON text as it is.
const fn special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Whether one of eight bytes can't. Most texts are names of a few bytes, too short for the compiler to look at many at once.
const fn special_of(bytes: [u8; 8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGHS: u64 = 0x8080_8080_8080_8080;
    let bytes = u64::from_le_bytes(bytes);
    // The highest bit of a byte that is less than `n`, which is at most 128, and some of those behind it.
    let less = bytes.wrapping_sub(ONES * 0x20);
    let quotes = (bytes ^ (ONES * b'"' as u64)).wrapping_sub(ONES);
    let slashes = (bytes ^ (ONES * b'\\' as u64)).wrapping_sub(ONES);
    (less | quotes | slashes) & !bytes & HIGHS != 0
}

/// Appends the inside of a JSON text.
#[inline]
pub(crate) fn escape(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    // Hardly any text has one to be found, so that nothing is gained by an early end.
    let (words, rest) = bytes.as_chunks::<8>();
    let found = words.iter().fold(false, |found, word| found | special_of(*word));
    if found | rest.iter().fold(false, |found, byte| found | special(*byte)) {
        escape_each(bytes, out);
    } else {
        out.extend_from_slice(bytes);
    }
}

#[cold]
fn escape_each(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        let short = match byte {
            b'"' | b'\\' => *byte,
            0x08 => b'b',
            0x09 => b't',
            0x0a => b'n',
            0x0c => b'f',
            0x0d => b'r',
            0..0x20 => {
                out.extend_from_slice(b"\\u00");
                out.extend([byte >> 4, byte & 0xf].map(|digit| hex(digit.into())));
                continue;
            }
            _ => {
                out.push(*byte);
                continue;
            }
        };
        out.extend_from_slice(&[b'\\', short]);
    }
}

fn hex(digit: usize) -> u8 {
    HEX.get(digit).copied().unwrap_or_default()
}

/// Appends a whole number.
#[inline]
pub(crate) fn integer(number: u64, negative: bool, out: &mut Vec<u8>) {
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// The last hexadecimal digits of a number, zeros at the front included.
#[inline]
pub(crate) fn hexadecimal<const WIDTH: usize>(number: u64) -> [u8; WIDTH] {
    let mut digits = [b'0'; WIDTH];
    let mut rest = number;
    for digit in digits.iter_mut().rev() {
        let low = u8::try_from(rest & 0xf).unwrap_or_default();
        *digit = low + if low < 10 { b'0' } else { b'a' - 10 };
        rest >>= 4;
    }
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn eight_bytes_are_judged_as_each_of_them_is() {
        for other in [b'a', 0x20, 0x21, b'#', b'[', b']', 0x7f, 0x80, 0xa2, 0xdc, 0xff] {
            for byte in 0..=u8::MAX {
                for place in 0..8 {
                    let mut bytes = [other; 8];
                    bytes[place] = byte;
                    assert_eq!(special_of(bytes), special(byte), "{byte:#x} at {place} among {other:#x}");
                }
            }
        }
    }
}
