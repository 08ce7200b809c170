//! JSON's grammar over one record: a cursor that takes a piece at a time.
//!
//! Invariant: never recurses; what is skipped is still checked, and nests at most `DEPTH_MAX` deep.

use crate::formats::Reason;

/// Deepest nesting of arrays and objects, the outermost included.
pub(super) const DEPTH_MAX: usize = 128;

/// A place in a record.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Scanner<'a> {
    /// At the record's beginning.
    pub fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next byte, white space skipped.
    #[inline]
    pub fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.at) {
            if !matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
                return Some(*byte);
            }
            self.at += 1;
        }
        None
    }

    /// Takes `byte` if it is next, after white space.
    #[inline]
    pub fn take(&mut self, byte: u8) -> bool {
        let is_next = self.peek() == Some(byte);
        self.at += usize::from(is_next);
        is_next
    }

    /// Takes `byte`, which must be next.
    #[inline]
    pub fn expect(&mut self, byte: u8) -> Result<(), Reason> {
        if self.take(byte) { Ok(()) } else { Err(self.unexpected(&format!("\"{}\"", char::from(byte)))) }
    }

    /// Nothing but white space may follow.
    pub fn end(&mut self) -> Result<(), Reason> {
        match self.peek() {
            None => Ok(()),
            Some(_) => Err(self.unexpected("the end of the record")),
        }
    }

    /// Takes `,` (true: another item follows) or `close` (false).
    #[inline]
    pub fn more(&mut self, close: u8) -> Result<bool, Reason> {
        match self.peek() {
            Some(b',') => {
                self.at += 1;
                Ok(true)
            }
            Some(byte) if byte == close => {
                self.at += 1;
                Ok(false)
            }
            _ => Err(self.unexpected(&format!("\",\" or \"{}\"", char::from(close)))),
        }
    }

    /// Takes `true`, `false` or `null`, which begins here.
    pub fn literal(&mut self, word: &str) -> Result<(), Reason> {
        if self.text.as_bytes()[self.at..].starts_with(word.as_bytes()) {
            self.at += word.len();
            Ok(())
        } else {
            Err(self.unexpected("a value"))
        }
    }

    /// Takes a number; its text is as JSON allows it.
    #[inline]
    pub fn number(&mut self) -> Result<&'a str, Reason> {
        let bytes = self.text.as_bytes();
        let start = self.at;
        let mut at = start + usize::from(bytes.get(start) == Some(&b'-'));
        let digits = |mut at: usize| {
            while bytes.get(at).is_some_and(u8::is_ascii_digit) {
                at += 1;
            }
            at
        };
        let whole = at;
        at = if bytes.get(at) == Some(&b'0') { at + 1 } else { digits(at) };
        let mut is_good = at > whole;
        if bytes.get(at) == Some(&b'.') {
            let end = digits(at + 1);
            is_good &= end > at + 1;
            at = end;
        }
        if matches!(bytes.get(at), Some(b'e' | b'E')) {
            at += 1 + usize::from(matches!(bytes.get(at + 1), Some(b'+' | b'-')));
            let end = digits(at);
            is_good &= end > at;
            at = end;
        }
        if !is_good {
            return Err(Reason::new(format!("a broken number at byte {start} of the record")));
        }
        self.at = at;
        Ok(&self.text[start..at])
    }

    /// Takes a string, which begins here; `scratch` holds it where it has escapes.
    #[inline]
    pub fn string<'t>(&mut self, scratch: &'t mut String) -> Result<&'t str, Reason>
    where
        'a: 't,
    {
        let bytes = self.text.as_bytes();
        let start = self.at + 1;
        let mut at = start;
        loop {
            match bytes.get(at) {
                Some(b'"') => {
                    self.at = at + 1;
                    return Ok(&self.text[start..at]);
                }
                Some(b'\\') => break,
                Some(0..=0x1F) | None => return Err(self.broken_string(at)),
                Some(_) => at += 1,
            }
        }
        scratch.clear();
        let mut from = start;
        loop {
            match bytes.get(at) {
                Some(b'"') => {
                    scratch.push_str(&self.text[from..at]);
                    self.at = at + 1;
                    return Ok(scratch);
                }
                Some(b'\\') => {
                    scratch.push_str(&self.text[from..at]);
                    at = self.escape(at + 1, scratch)?;
                    from = at;
                }
                Some(0..=0x1F) | None => return Err(self.broken_string(at)),
                Some(_) => at += 1,
            }
        }
    }

    /// Takes any value and forgets it. `depth` arrays and objects are open around it.
    pub fn skip(&mut self, depth: usize) -> Result<(), Reason> {
        // Bit i says whether the i-th open one is an object.
        let (mut objects, mut open) = (0u128, 0usize);
        loop {
            let begins = match self.peek() {
                Some(begin @ (b'{' | b'[')) => Some(begin == b'{'),
                Some(b'"') => {
                    self.skip_string()?;
                    None
                }
                Some(b'-' | b'0'..=b'9') => {
                    self.number()?;
                    None
                }
                Some(b't') => self.literal("true").map(|()| None)?,
                Some(b'f') => self.literal("false").map(|()| None)?,
                Some(b'n') => self.literal("null").map(|()| None)?,
                _ => return Err(self.unexpected("a value")),
            };
            if let Some(is_object) = begins {
                check_depth(depth + open + 1)?;
                self.at += 1;
                if !self.take(if is_object { b'}' } else { b']' }) {
                    objects = if is_object { objects | 1 << open } else { objects & !(1 << open) };
                    open += 1;
                    if is_object {
                        self.skip_key()?;
                    }
                    continue;
                }
            }
            // A value has ended, and with it perhaps what it stands in.
            loop {
                if open == 0 {
                    return Ok(());
                }
                let is_object = objects >> (open - 1) & 1 == 1;
                if self.more(if is_object { b'}' } else { b']' })? {
                    if is_object {
                        self.skip_key()?;
                    }
                    break;
                }
                open -= 1;
            }
        }
    }

    /// Says that `expected` is not what stands here.
    pub fn unexpected(&mut self, expected: &str) -> Reason {
        let found = match self.peek() {
            None => "the end of the record".to_owned(),
            Some(b'{') => "an object".to_owned(),
            Some(b'[') => "an array".to_owned(),
            Some(b'"') => "a string".to_owned(),
            Some(b'-' | b'0'..=b'9') => "a number".to_owned(),
            Some(_) if self.text[self.at..].starts_with("null") => "null".to_owned(),
            Some(_) if self.text[self.at..].starts_with("true") || self.text[self.at..].starts_with("false") => {
                "a boolean".to_owned()
            }
            Some(_) => {
                let c = self.text[self.at..].chars().next().unwrap_or(' ');
                format!("\"{}\"", c.escape_default())
            }
        };
        Reason::new(format!("expected {expected}, found {found} at byte {} of the record", self.at))
    }

    fn skip_key(&mut self) -> Result<(), Reason> {
        if self.peek() != Some(b'"') {
            return Err(self.unexpected("a field's name"));
        }
        self.skip_string()?;
        self.expect(b':')
    }

    /// Takes a string whose text nobody needs; its escapes are checked all the same.
    fn skip_string(&mut self) -> Result<(), Reason> {
        let mut scratch = String::new();
        self.string(&mut scratch).map(drop)
    }

    /// Takes an escape, whose letter is at `at`; answers where it ends.
    fn escape(&self, at: usize, out: &mut String) -> Result<usize, Reason> {
        let plain = match self.text.as_bytes().get(at) {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{C}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode(at + 1, out),
            _ => return Err(self.broken_string(at)),
        };
        out.push(plain);
        Ok(at + 1)
    }

    /// Takes the four digits of `\uXXXX` at `at`, and those of the second half of a pair.
    fn unicode(&self, at: usize, out: &mut String) -> Result<usize, Reason> {
        let first = self.unit(at)?;
        let (code, end) = match first {
            0xD800..=0xDBFF => {
                let is_pair = self.text.as_bytes().get(at + 4..at + 6) == Some(b"\\u");
                let second = if is_pair { self.unit(at + 6)? } else { 0 };
                if !(0xDC00..=0xDFFF).contains(&second) {
                    return Err(Reason::new(format!("half a surrogate pair at byte {at} of the record")));
                }
                (0x1_0000 + ((first - 0xD800) << 10) + (second - 0xDC00), at + 10)
            }
            _ => (first, at + 4),
        };
        let c = char::from_u32(code).ok_or_else(|| Reason::new(format!("half a surrogate pair at byte {at} of the record")))?;
        out.push(c);
        Ok(end)
    }

    fn unit(&self, at: usize) -> Result<u32, Reason> {
        let digits = self.text.as_bytes().get(at..at + 4).filter(|digits| digits.iter().all(u8::is_ascii_hexdigit));
        digits
            .and_then(|digits| u32::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok())
            .ok_or_else(|| self.broken_string(at))
    }

    fn broken_string(&self, at: usize) -> Reason {
        match self.text.as_bytes().get(at) {
            None => Reason::new("a string without end"),
            Some(byte) => Reason::new(format!("{byte:#04x} at byte {at} of the record cannot stand there in a string")),
        }
    }
}

/// Whether another array or object, the `depth`th, may be opened.
#[inline]
pub(super) fn check_depth(depth: usize) -> Result<(), Reason> {
    if depth <= DEPTH_MAX { Ok(()) } else { Err(Reason::new(format!("nested deeper than {DEPTH_MAX}"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn skips(text: &str) -> Result<(), Reason> {
        let mut scanner = Scanner::new(text);
        scanner.skip(0)?;
        scanner.end()
    }

    #[test]
    fn what_is_skipped_is_json() {
        for good in [
            "{}",
            "[]",
            " [ 1 , -0.5e+7 , \"a\\\"\\u00e4\\uD83D\\uDE00\" , true,false,null, {\"a\":[{}],\"\":{\"b\":1}} ] ",
            "0",
            "\"\"",
            "[[],[[]],{}]",
        ] {
            assert_eq!(skips(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "{",
            "[",
            "[1,]",
            "{\"a\":1,}",
            "{\"a\"}",
            "{a:1}",
            "01",
            "1.",
            ".5",
            "-",
            "1e",
            "+1",
            "[1 2]",
            "{\"a\":1]",
            "[1}",
            "\"",
            "\"\t\"",
            "\"\\x\"",
            "\"\\u12\"",
            "\"\\uD800\"",
            "\"\\uDC00\"",
            "\"\\uD800\\u0041\"",
            "tru",
            "nul",
            "[] []",
            "]",
            "NaN",
            "{\"a\":1 \"b\":2}",
            "[,1]",
        ] {
            assert!(skips(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn depth_is_limited_and_costs_no_stack() {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            for depth in [10usize, 127, 128, 129, 1_000, 100_000] {
                let inner = if open == "[" { "" } else { "1" };
                let closed = format!("{}{inner}{}", open.repeat(depth), close.repeat(depth));
                assert_eq!(skips(&closed).is_ok(), depth <= DEPTH_MAX, "{depth}");
                assert!(skips(&open.repeat(depth)).is_err());
            }
        }
        assert!(skips("[[1],[[2]],[]").is_err());
    }
}
