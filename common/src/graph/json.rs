//! Reads JSON into a located tree. YAML's readers refuse some JSON (tabs, surrogate pairs), so it has a reader of its own.

use super::tree::{Builder, Stop};

/// Why a text is not JSON.
#[derive(Debug)]
pub(super) enum Refusal {
    /// It is not JSON; the line and the reason.
    Syntax(u32, String),
    /// It is, but a limit was met, reported already.
    Limit,
}

impl From<Stop> for Refusal {
    fn from(Stop: Stop) -> Self {
        Self::Limit
    }
}

/// Reads `document` into `builder`.
pub(super) fn read(document: &str, builder: &mut Builder) -> Result<(), Refusal> {
    let mut reader = Reader { text: document, at: 0, line: 1 };
    reader.value(builder)?;
    reader.space();
    if reader.at < document.len() { reader.fail("something follows the document") } else { Ok(()) }
}

struct Reader<'t> {
    text: &'t str,
    at: usize,
    line: u32,
}

impl Reader<'_> {
    fn fail<T>(&self, reason: impl Into<String>) -> Result<T, Refusal> {
        Err(Refusal::Syntax(self.line, reason.into()))
    }

    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn space(&mut self) {
        while let Some(byte @ (b' ' | b'\t' | b'\r' | b'\n')) = self.peek() {
            self.line += u32::from(byte == b'\n');
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.space();
        let found = self.peek() == Some(byte);
        self.at += usize::from(found);
        found
    }

    fn expect(&mut self, byte: u8) -> Result<(), Refusal> {
        if self.take(byte) { Ok(()) } else { self.fail(format!("`{}` is missing", char::from(byte))) }
    }

    /// A value; the builder's limit on depth bounds the recursion.
    fn value(&mut self, builder: &mut Builder) -> Result<(), Refusal> {
        self.space();
        let (line, start) = (self.line, self.at);
        match self.peek() {
            Some(b'{') => {
                self.at += 1;
                builder.open_map(line, start)?;
                if !self.take(b'}') {
                    loop {
                        self.space();
                        self.string(builder)?;
                        self.expect(b':')?;
                        self.value(builder)?;
                        if !self.take(b',') {
                            break self.expect(b'}')?;
                        }
                    }
                }
                builder.close(self.at);
            }
            Some(b'[') => {
                self.at += 1;
                builder.open_list(line, start)?;
                if !self.take(b']') {
                    loop {
                        self.value(builder)?;
                        if !self.take(b',') {
                            break self.expect(b']')?;
                        }
                    }
                }
                builder.close(self.at);
            }
            Some(b'"') => self.string(builder)?,
            Some(_) => self.word(builder)?,
            None => return self.fail("the document ends too early"),
        }
        Ok(())
    }

    /// A number, `true`, `false` or `null`.
    fn word(&mut self, builder: &mut Builder) -> Result<(), Refusal> {
        let rest = &self.text[self.at..];
        let length = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'))).unwrap_or(rest.len());
        let word = &rest[..length];
        if serde_json::from_str::<serde_json::Value>(word).is_err() {
            return self.fail("a value is missing or malformed");
        }
        builder.scalar(word.to_owned(), true, self.line, self.at..self.at + length)?;
        self.at += length;
        Ok(())
    }

    /// A string, unescaped by serde_json.
    fn string(&mut self, builder: &mut Builder) -> Result<(), Refusal> {
        if self.peek() != Some(b'"') {
            return self.fail("a text in double quotes is missing");
        }
        let start = self.at;
        let bytes = self.text.as_bytes();
        let mut end = start + 1;
        loop {
            match bytes.get(end) {
                None | Some(b'\n') => return self.fail("a text in double quotes does not end"),
                Some(b'"') => break,
                Some(b'\\') => end += 2,
                Some(_) => end += 1,
            }
        }
        end += 1;
        let text = self.text.get(start..end).and_then(|quoted| serde_json::from_str::<String>(quoted).ok());
        let Some(text) = text else { return self.fail("a text in double quotes is malformed") };
        builder.scalar(text, false, self.line, start..end)?;
        self.at = end;
        Ok(())
    }
}
