//! Whatever comes from the wire or stands in a file ends as a value or an error, and what is a value is written and read again.

use bytes::Bytes;
use levada_common::checkpoint::CheckpointMetadata;
use levada_common::ids::SubtaskIndex;
use proptest::prelude::*;
use prost::Message;

use crate::convert::{
    RestoreState, attempt_from_ref, decline_from_json, failure_from_info, metadata_from_file, snapshot_from_message,
    snapshot_to_message, state_from_message, task_from_ref,
};
use crate::frame::FrameKind;
use crate::{metadata, v1};

/// Bytes in the form of a message: fields with numbers and contents as ours have them, nested to some depth.
fn message() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![Just(0u64), 0u64..300, Just(u64::from(u32::MAX)), any::<u64>()].prop_map(|number| {
        let mut bytes = Vec::new();
        varint(number, &mut bytes);
        (0u8, bytes)
    });
    let texts = [
        "",
        "keyed",
        "operator_list",
        "user",
        "0190000000007000800000000000000a",
        "chk-1/a",
        "../a",
        "{}",
        "null",
        "{\"shape\":",
    ];
    let text = prop::sample::select(texts.to_vec()).prop_map(|text| (2u8, text.as_bytes().to_vec()));
    let bytes = prop::collection::vec(any::<u8>(), 0..6).prop_map(|bytes| (2u8, bytes));
    let leaf = fields(prop_oneof![number.clone(), text.clone(), bytes.clone()]).boxed();
    leaf.prop_recursive(4, 60, 8, move |inner| {
        fields(prop_oneof![number.clone(), text.clone(), bytes.clone(), inner.prop_map(|bytes| (2u8, bytes))])
    })
}

fn fields(content: impl Strategy<Value = (u8, Vec<u8>)>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec((1u64..16, content), 0..10).prop_map(|fields| {
        let mut bytes = Vec::new();
        for (number, (wire, content)) in fields {
            varint(number << 3 | u64::from(wire), &mut bytes);
            if wire == 2 {
                varint(content.len() as u64, &mut bytes);
            }
            bytes.extend_from_slice(&content);
        }
        bytes
    })
}

fn varint(mut number: u64, out: &mut Vec<u8>) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// A `_metadata` file with a right header around this content.
fn file(content: &[u8]) -> Bytes {
    let mut bytes = metadata::MAGIC.to_vec();
    bytes.extend_from_slice(&metadata::VERSION.to_le_bytes());
    bytes.extend_from_slice(&crc32c::crc32c(content).to_le_bytes());
    bytes.extend_from_slice(content);
    bytes.into()
}

/// Reads the bytes as everything that they could be.
fn read(bytes: &[u8]) -> Option<CheckpointMetadata> {
    if let Ok(message) = v1::TaskSnapshotMessage::decode(bytes)
        && let Ok(snapshot) = snapshot_from_message(message)
    {
        let again = snapshot_from_message(snapshot_to_message(snapshot.clone()));
        assert_eq!(again.expect("what was read is written and read"), snapshot);
    }
    let _ = v1::StateHandleMessage::decode(bytes).map(|message| state_from_message(SubtaskIndex(1), message).is_ok());
    let _ = v1::StateRef::decode(bytes).map(|message| RestoreState::try_from(message).is_ok());
    let _ = v1::AttemptRef::decode(bytes).map(|message| attempt_from_ref(Some(&message)).is_ok());
    let _ = v1::TaskRef::decode(bytes).map(|message| task_from_ref(Some(&message)).is_ok());
    let _ = v1::FailureInfo::decode(bytes).map(|message| failure_from_info(Some(message)).is_ok());
    let _ = v1::FromTaskManager::decode(bytes).is_ok() | v1::ToTaskManager::decode(bytes).is_ok();
    let _ = v1::AcknowledgeCheckpointRequest::decode(bytes).is_ok() | v1::ChannelHeader::decode(bytes).is_ok();
    let _ = std::str::from_utf8(bytes).map(|json| decline_from_json(json).is_ok());
    let _ = bytes.first().map(|byte| FrameKind::from_byte(*byte));
    let _ = metadata::decode(Bytes::copy_from_slice(bytes)).is_ok();
    metadata::decode(file(bytes)).ok()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn random_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        read(&bytes);
    }

    #[test]
    fn random_messages_do_no_harm(bytes in message()) {
        read(&bytes);
    }

    #[test]
    fn damaged_metadata_does_no_harm(at in any::<prop::sample::Index>(), cut in 0usize..20, insert in prop::collection::vec(any::<u8>(), 0..6)) {
        let golden = include_bytes!("../golden/metadata-1.bin");
        let content = &golden[16..];
        let at = at.index(content.len());
        let end = (at + cut).min(content.len());
        let damaged = [&content[..at], &insert, &content[end..]].concat();
        if let Some(metadata) = read(&damaged) {
            let again = metadata::decode(metadata::encode(metadata.clone())).expect("what was read is written and read");
            prop_assert_eq!(again, metadata);
        }
    }
}

/// The gate against an empty run: some of what is tried must be read.
#[test]
fn the_golden_content_is_read() {
    let golden = include_bytes!("../golden/metadata-1.bin");
    let metadata = read(&golden[16..]).expect("it is what it was");
    assert!(metadata_from_file(v1::CheckpointMetadataFile::decode(&golden[16..]).expect("it is one")).is_ok());
    assert_eq!(metadata.tasks.len(), 2);
}
