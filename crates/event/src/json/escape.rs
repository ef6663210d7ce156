//! Texts and numbers as JSON has them.

const HEX: &[u8; 16] = b"0123456789abcdef";

/// Whether a byte can't stand in a JSON text as it is.
const fn special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

/// Appends the inside of a JSON text.
#[inline]
pub(crate) fn escape(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    // Without an early end the compiler looks at many bytes at once; hardly any text has one to be found.
    if bytes.iter().fold(false, |found, byte| found | special(*byte)) {
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

/// Appends a whole number. No number of 64 bits has more than 20 digits.
#[inline]
pub(crate) fn integer(number: u64, negative: bool, out: &mut Vec<u8>) {
    let mut digits = [b'0'; 20];
    let mut rest = number;
    let mut count = 0;
    for digit in digits.iter_mut().rev() {
        *digit = b'0' + u8::try_from(rest % 10).unwrap_or_default();
        rest /= 10;
        count += 1;
        if rest == 0 {
            break;
        }
    }
    if negative {
        out.push(b'-');
    }
    out.extend_from_slice(digits.get(digits.len() - count..).unwrap_or_default());
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
