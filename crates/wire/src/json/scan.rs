//! A scanner of JSON for who needs a few fields of a large text: what isn't asked for is skipped at the speed at which
//! bytes can be searched. It checks the grammar as it goes, so that a text it takes is JSON; what it gives up on (faults,
//! escapes in names, types that weren't expected) is for the readers that can tell what is wrong.

#[cfg(test)]
mod tests;

use smallvec::SmallVec;

use super::string::{Inside, inside};

/// A place in a text.
#[derive(Debug, Clone)]
pub(crate) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    /// Whether the text has control characters, which strings may not have. Most have none, not even as white space.
    controls: bool,
}

impl<'a> Scanner<'a> {
    /// At the beginning of a text.
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, at: 0, controls: has_control(text.as_bytes()) }
    }

    /// Reads an object: `member` gets each name and must take its value.
    pub(crate) fn object(&mut self, mut member: impl FnMut(&'a str, &mut Self) -> Option<()>) -> Option<()> {
        self.space();
        self.eat(b'{')?;
        self.space();
        if self.eat(b'}').is_some() {
            return Some(());
        }
        loop {
            let name = self.name()?;
            member(name, self)?;
            self.space();
            if self.eat(b',').is_none() {
                return self.eat(b'}');
            }
            self.space();
        }
    }

    /// Reads a list: `element` must take each value.
    pub(crate) fn array(&mut self, mut element: impl FnMut(&mut Self) -> Option<()>) -> Option<()> {
        self.space();
        self.eat(b'[')?;
        self.space();
        if self.eat(b']').is_some() {
            return Some(());
        }
        loop {
            element(self)?;
            self.space();
            if self.eat(b',').is_none() {
                return self.eat(b']');
            }
        }
    }

    /// Takes any value and gives its text.
    pub(crate) fn raw(&mut self) -> Option<&'a str> {
        self.space();
        let start = self.at;
        self.value()?;
        self.text.get(start..self.at)
    }

    /// Takes a string without escapes, or `null`, which gives nothing.
    pub(crate) fn text(&mut self) -> Option<Option<&'a str>> {
        let raw = self.raw()?;
        if raw == "null" {
            return Some(None);
        }
        let inside = raw.strip_prefix('"')?.strip_suffix('"')?;
        (!inside.contains('\\')).then_some(Some(inside))
    }

    /// Whether `null` comes next; it is taken then.
    pub(crate) fn null(&mut self) -> bool {
        self.space();
        self.word(b"null").is_some()
    }

    /// Nothing but white space may be left.
    pub(crate) fn end(&mut self) -> Option<()> {
        self.space();
        (self.at == self.text.len()).then_some(())
    }

    fn rest(&self) -> &'a [u8] {
        self.text.as_bytes().get(self.at..).unwrap_or_default()
    }

    fn next(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(b' ' | b'\n' | b'\t' | b'\r') = self.next() {
            self.at += 1;
        }
    }

    fn eat(&mut self, byte: u8) -> Option<()> {
        (self.next() == Some(byte)).then(|| self.at += 1)
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.rest().starts_with(word).then(|| self.at += word.len())
    }

    /// A member's name and the colon behind it; nothing if it has escapes.
    fn name(&mut self) -> Option<&'a str> {
        let start = self.at + 1;
        let plain = self.string()?;
        let name = self.text.get(start..self.at - 1)?;
        self.space();
        self.eat(b':')?;
        plain.then_some(name)
    }

    /// Skips a string and says whether it has no escapes.
    fn string(&mut self) -> Option<bool> {
        self.eat(b'"')?;
        let rest = self.rest();
        let Inside { length, plain } = inside(rest)?;
        if self.controls && has_control(rest.get(..length)?) {
            return None;
        }
        self.at += length + 1;
        Some(plain)
    }

    fn scalar(&mut self) -> Option<()> {
        match self.next()? {
            b'"' => self.string().map(|_| ()),
            b't' => self.word(b"true"),
            b'f' => self.word(b"false"),
            b'n' => self.word(b"null"),
            _ => self.number(),
        }
    }

    fn number(&mut self) -> Option<()> {
        let _negative = self.eat(b'-');
        if self.eat(b'0').is_none() {
            self.digits()?;
        }
        if self.eat(b'.').is_some() {
            self.digits()?;
        }
        if let Some(b'e' | b'E') = self.next() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.next() {
                self.at += 1;
            }
            self.digits()?;
        }
        Some(())
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.next().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }

    /// Skips a value of any depth. What is open stands in a list, so that no depth exhausts the stack.
    fn value(&mut self) -> Option<()> {
        let mut open: SmallVec<[u8; 32]> = SmallVec::new();
        loop {
            self.space();
            let begins = match self.next()? {
                byte @ (b'{' | b'[') => {
                    self.at += 1;
                    self.space();
                    let end = if byte == b'{' { b'}' } else { b']' };
                    if self.eat(end).is_some() {
                        false
                    } else {
                        open.push(byte);
                        if byte == b'{' {
                            self.skip_name()?;
                        }
                        true
                    }
                }
                _ => {
                    self.scalar()?;
                    false
                }
            };
            if !begins && self.close(&mut open)? {
                return Some(());
            }
        }
    }

    /// Behind a value: closes what ends here and goes to where the next value begins; true when nothing is open.
    fn close(&mut self, open: &mut SmallVec<[u8; 32]>) -> Option<bool> {
        loop {
            let Some(inner) = open.last() else { return Some(true) };
            self.space();
            match (self.next()?, inner) {
                (b',', b'[') => {
                    self.at += 1;
                    return Some(false);
                }
                (b',', _) => {
                    self.at += 1;
                    self.space();
                    self.skip_name()?;
                    return Some(false);
                }
                (b']', b'[') | (b'}', b'{') => {
                    self.at += 1;
                    open.pop();
                }
                _ => return None,
            }
        }
    }

    /// The name of a member that isn't looked at, which may have escapes.
    fn skip_name(&mut self) -> Option<()> {
        self.string()?;
        self.space();
        self.eat(b':')
    }
}

/// Without an early end the compiler looks at many bytes at once.
fn has_control(bytes: &[u8]) -> bool {
    bytes.iter().fold(false, |found, byte| found | (*byte < 0x20))
}

/// Length of the string whose opening quote stands before `rest`, if it has no escapes and is what a string may be.
pub(crate) fn plain_string(rest: &[u8]) -> Option<usize> {
    let Inside { length, plain } = inside(rest)?;
    let string = rest.get(..length)?;
    (plain && !has_control(string) && std::str::from_utf8(string).is_ok()).then_some(length)
}
