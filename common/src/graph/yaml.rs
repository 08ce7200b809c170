//! Reads YAML into a located tree.
//!
//! Refused, since none of it helps in a job and each can mislead or blow up: anchors, aliases, merge keys, tags, several documents.

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::tree::{Builder, Stop};

/// Reads `document` into `builder`; what is wrong stands among its errors.
pub(super) fn read(document: &str, builder: &mut Builder) -> Result<(), Stop> {
    let offsets = Offsets::new(document);
    let mut parser = Parser::new_from_str(document);
    let mut documents = 0;
    while let Some(event) = parser.next_event() {
        let (event, span) = match event {
            Ok(event) => event,
            Err(error) => {
                builder.error(line(error.marker().line()), format!("this is not YAML: {}", error.info()));
                return Err(Stop);
            }
        };
        let at = line(span.start.line());
        match event {
            Event::DocumentStart(_) => {
                documents += 1;
                if documents > 1 {
                    builder.error(at, "a second document starts here; a job is one document");
                    return Err(Stop);
                }
            }
            Event::Alias(_) => builder.broken(at, "aliases (`*name`) are not supported; write the value out")?,
            Event::Scalar(text, style, anchor, tag) => {
                refuse_properties(builder, at, anchor, tag.is_some());
                let bytes = offsets.bytes(&span);
                builder.scalar(text.into_owned(), style == ScalarStyle::Plain, at, bytes)?;
            }
            Event::SequenceStart(anchor, tag) => {
                refuse_properties(builder, at, anchor, tag.is_some());
                builder.open_list(at, offsets.bytes(&span).start)?;
            }
            Event::MappingStart(anchor, tag) => {
                refuse_properties(builder, at, anchor, tag.is_some());
                builder.open_map(at, offsets.bytes(&span).start)?;
            }
            Event::SequenceEnd | Event::MappingEnd => builder.close(offsets.bytes(&span).end),
            Event::StreamEnd => break,
            Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
        }
    }
    Ok(())
}

fn line(line: usize) -> u32 {
    u32::try_from(line).unwrap_or(u32::MAX).max(1)
}

fn refuse_properties(builder: &mut Builder, line: u32, anchor: usize, tagged: bool) {
    if anchor != 0 {
        builder.error(line, "anchors (`&name`) are not supported; write the value out where it is needed");
    }
    if tagged {
        builder.error(line, "tags (`!name`) are not supported");
    }
}

/// From the parser's places, counted in letters, to bytes.
struct Offsets {
    /// Of each letter; `None` where a letter is a byte.
    of_letters: Option<Vec<u32>>,
    bytes: usize,
}

impl Offsets {
    fn new(document: &str) -> Self {
        let of_letters = (!document.is_ascii()).then(|| document.char_indices().map(|(at, _)| at as u32).collect());
        Self { of_letters, bytes: document.len() }
    }

    fn bytes(&self, span: &Span) -> std::ops::Range<usize> {
        let byte = |letter: usize| match &self.of_letters {
            None => letter.min(self.bytes),
            Some(offsets) => offsets.get(letter).map_or(self.bytes, |at| *at as usize),
        };
        let start = byte(span.start.index());
        start..byte(span.end.index()).max(start)
    }
}
