//! Messages of many parts, cut to what the JobManager takes at once.

/// Bytes of a message that are none of its parts'.
const REST_BYTES: u64 = 1024;

/// Bytes before a part: its field and its length.
const PART_HEAD_BYTES: u64 = 8;

/// The parts in their order, as many to a portion as a message of at most `frame_bytes` holds; at least one portion.
///
/// A part that no message has room for is left out: what it would tell is worth less than the stream.
pub fn portions<T>(parts: Vec<T>, frame_bytes: u64, bytes_of: impl Fn(&T) -> u64) -> Vec<Vec<T>> {
    let room = frame_bytes.saturating_sub(REST_BYTES);
    let (mut portions, mut portion, mut used) = (Vec::new(), Vec::new(), 0);
    for part in parts {
        let bytes = bytes_of(&part) + PART_HEAD_BYTES;
        if bytes > room {
            tracing::debug!(bytes, room, "counters that no message has room for are not told");
            continue;
        }
        if used + bytes > room {
            portions.push(std::mem::take(&mut portion));
            used = 0;
        }
        used += bytes;
        portion.push(part);
    }
    portions.push(portion);
    portions
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stay_in_order_and_each_portion_in_its_frame() {
        let frame = REST_BYTES + 100;
        let cut = |parts: Vec<u64>| portions(parts, frame, |part| *part);
        assert_eq!(cut(vec![]), [Vec::<u64>::new()]);
        assert_eq!(cut(vec![42, 42, 42]), [vec![42, 42], vec![42]], "two parts and their heads are 100 bytes");
        assert_eq!(cut(vec![42, 43, 1]), [vec![42], vec![43, 1]]);
        assert_eq!(cut(vec![1, 93, 92]), [vec![1], vec![92]], "93 bytes and a head are too many");
    }
}
