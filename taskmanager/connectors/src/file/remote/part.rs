//! A file that is closed and not published: an entry of a snapshot.

use levada_common::ids::CheckpointId;
use levada_common::storage::Staged;
use serde::{Deserialize, Serialize};

use crate::error::ConnectorError;

/// A closed file, with everything that it takes to publish it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RemotePart {
    /// The checkpoint whose barrier closed it.
    pub checkpoint: CheckpointId,
    /// URI of the folder.
    pub folder: String,
    /// The staged file.
    pub staged: Staged,
}

impl RemotePart {
    /// Reads an entry of a snapshot.
    pub fn parse(text: &str) -> Result<Self, ConnectorError> {
        serde_json::from_str(text).map_err(|error| ConnectorError::BadEntry { entry: text.to_owned(), reason: error.to_string() })
    }

    /// The entry of a snapshot.
    pub fn entry(&self) -> String {
        serde_json::to_string(self).expect("texts and numbers are JSON")
    }
}

#[cfg(test)]
mod tests {
    use levada_common::storage::Upload;

    use super::*;

    #[test]
    fn entries_stay_as_they_are() {
        let upload = Upload { id: "u-1".into(), parts: vec!["\"t\"".into()] };
        let staged = Staged { path: "part-1".into(), bytes: 9, upload: Some(upload) };
        let part = RemotePart { checkpoint: CheckpointId(3), folder: "s3://b/out".into(), staged };
        let text = r#"{"checkpoint":3,"folder":"s3://b/out","staged":{"path":"part-1","bytes":9,"upload":{"id":"u-1","parts":["\"t\""]}}}"#;
        assert_eq!(part.entry(), text);
        assert_eq!(RemotePart::parse(text).expect("its own"), part);
        assert!(
            RemotePart::parse(r#"{"checkpoint":3,"folder":"/out","hidden":".x","name":"x"}"#).is_err(),
            "a local file's entry"
        );
    }
}
