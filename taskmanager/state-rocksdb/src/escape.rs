//! Names from users as names of folders.

use std::fmt::Write;

use levada_common::keys::key_hash;

/// Longest name that is kept whole; file systems take 255 bytes.
const WHOLE_BYTES: usize = 120;

/// A folder's name for `name`: different for different names, and never a path.
pub fn folder_name(name: &str) -> String {
    let mut escaped = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        let is_plain = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0);
        match is_plain {
            true => escaped.push(char::from(byte)),
            false => write!(escaped, "%{byte:02X}").expect("a string takes everything"),
        }
    }
    if escaped.is_empty() {
        return "%".into();
    }
    if escaped.len() > WHOLE_BYTES {
        escaped.truncate(WHOLE_BYTES - 20);
        // `%%` is in no escaped name, so that a cut one is never another's whole.
        write!(escaped, "%%{:08x}{:08x}", key_hash(name.as_bytes()), crc32c::crc32c(name.as_bytes()))
            .expect("a string takes everything");
    }
    escaped
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_are_escaped() {
        for (name, folder) in [
            ("counts", "counts"),
            ("../x", "%2E.%2Fx"),
            (".", "%2E"),
            ("", "%"),
            ("a b%20", "a%20b%2520"),
            ("mäggi", "m%C3%A4ggi"),
            ("v1.2", "v1.2"),
        ] {
            assert_eq!(folder_name(name), folder);
        }
        let (long, other) = ("ö".repeat(64), format!("{}x", "ö".repeat(63)));
        assert!(folder_name(&long).len() <= WHOLE_BYTES && folder_name(&long) != folder_name(&other));
    }

    proptest! {
        #[test]
        fn different_names_have_different_folders(left in ".{0,8}", right in ".{0,8}") {
            prop_assert_eq!(left == right, folder_name(&left) == folder_name(&right));
            prop_assert!(!folder_name(&left).contains('/') && !folder_name(&left).starts_with('.'));
        }
    }
}
