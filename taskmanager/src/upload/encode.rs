//! The computing half of an upload, on blocking threads: states to bytes, sinks' durable work.
//!
//! A state that is too large to share a file goes into its own while it is encoded: in memory are a few of its batches.

use std::io::{self, BufWriter, Write};
use std::sync::{Arc, Weak};

use bytes::Bytes;
use levada_common::checkpoint::{DeclineReason, Handle, StateHandle, StateKind};
use levada_common::fault::Faulty;
use levada_common::ids::TaskId;
use levada_common::keys::KeyGroupRange;
use levada_common::plan::Plan;
use levada_common::storage::Draft;
use levada_engine::sink::Durable;
use levada_state::cold::ColdError;
use levada_state::format::{EncodeError, SizeLimit, encode, encode_database};
use levada_state::snapshot::{Contents, StateMeta, StatePart};
use tokio::task::JoinSet;

use super::store::{PACKED_BYTES_MAX, Store};

/// Bytes that are written to a file at once.
const FILE_BUFFER_BYTES: usize = 1 << 20;

/// Why a snapshot does not come about.
#[derive(Debug)]
pub enum Stopped {
    /// The checkpoint, the attempt or the task's part in it was given up: nobody is to be told.
    GivenUp,
    /// The JobManager is told why.
    Declined(DeclineReason),
}

impl From<ColdError> for Stopped {
    fn from(error: ColdError) -> Self {
        match error {
            ColdError::Abandoned { .. } => Self::GivenUp,
            error => Self::Declined(DeclineReason::Declined(error.to_failure().message)),
        }
    }
}

/// An encoded state.
pub struct Encoded {
    /// Everything but where its bytes are.
    pub state: StateHandle,
    /// Its bytes.
    pub body: Body,
}

/// Where the bytes of an encoded state are.
pub enum Body {
    /// In memory; the handle has them, inline.
    Memory(Bytes),
    /// In a file of their own, which has still to be finished.
    File(Draft),
}

impl Encoded {
    /// Whether it is in memory.
    pub fn is_in_memory(&self) -> bool {
        matches!(self.body, Body::Memory(_))
    }
}

impl Body {
    /// The bytes, if they are in memory.
    pub fn into_memory(self) -> Option<Bytes> {
        match self {
            Self::Memory(bytes) => Some(bytes),
            Self::File(_) => None,
        }
    }
}

/// Encodes all states at once, each on a blocking thread, and does the durable work beside it; in the order of `parts`. Large ones go
/// into files of `store`, where there is one.
///
/// The first error wins; what still runs is not waited for, and stops at its next write, as it does where this future is dropped.
pub async fn encode_all(
    plan: &Arc<Plan>,
    task: TaskId,
    parts: Vec<StatePart>,
    durable: Vec<Durable>,
    state_bytes_max: Option<u64>,
    store: Option<&Store>,
) -> Result<Vec<Encoded>, Stopped> {
    let mut work = JoinSet::new();
    let count = parts.len();
    let wanted = Arc::new(());
    for (place, part) in parts.into_iter().enumerate() {
        let (plan, store, wanted) = (Arc::clone(plan), store.cloned(), Arc::downgrade(&wanted));
        work.spawn_blocking(move || {
            let encoded = encode_state(&plan, task, part, state_bytes_max, store.as_ref(), wanted);
            encoded.map(|encoded| Some((place, encoded)))
        });
    }
    for durable in durable {
        work.spawn_blocking(move || match durable() {
            Ok(()) => Ok(None),
            Err(error) => Err(Stopped::Declined(DeclineReason::Declined(error.to_failure().message))),
        });
    }
    let mut encoded: Vec<Option<Encoded>> = std::iter::repeat_with(|| None).take(count).collect();
    while let Some(done) = work.join_next().await {
        let done =
            done.map_err(|error| Stopped::Declined(DeclineReason::Declined(format!("encoding a state failed: {error}"))))?;
        if let Some((place, state)) = done? {
            encoded[place] = Some(state);
        }
    }
    Ok(encoded.into_iter().map(|state| state.expect("each part was encoded")).collect())
}

fn encode_state(
    plan: &Plan,
    task: TaskId,
    part: StatePart,
    bytes_max: Option<u64>,
    store: Option<&Store>,
    wanted: Weak<()>,
) -> Result<Encoded, Stopped> {
    let StatePart { meta, contents } = part;
    let limit = SizeLimit { bytes_max };
    let own_file = store.map(|store| (store, store.name(&meta.uid, &meta.name, task.subtask)));
    let mut out = Output { bytes: Vec::new(), file: None, own_file, wanted };
    let written = match contents {
        Contents::Pieces(pieces) => encode(&meta, plan.max_parallelism, pieces, limit, &mut out),
        Contents::Database(database) => encode_database(&meta, plan.max_parallelism, database.as_ref(), limit, &mut out),
    };
    let Output { bytes, file, own_file, .. } = out;
    let path = own_file.map(|(_, path)| path).unwrap_or_default();
    let written = written.map_err(|error| not_encoded(&meta, task, &path, error))?;
    let (handle, body) = match file {
        None => {
            let bytes = Bytes::from(bytes);
            (Handle::Inline(bytes.clone()), Body::Memory(bytes))
        }
        Some(file) => {
            let file = file.into_inner().map_err(|error| not_stored(&path, &error.into_error()))?;
            (Handle::File { path, offset: 0, length: file.bytes() }, Body::File(file))
        }
    };
    let state = StateHandle {
        key_groups: key_groups(plan, task, meta.kind),
        uid: meta.uid,
        name: meta.name,
        kind: meta.kind,
        schema: meta.schema,
        subtask: task.subtask,
        rows: written.rows,
        crc32c: written.crc32c,
        handle,
    };
    Ok(Encoded { state, body })
}

/// Takes the bytes of a state: in memory, until they are enough for a file of their own.
struct Output<'a> {
    bytes: Vec<u8>,
    file: Option<BufWriter<Draft>>,
    /// Where there may be one, and what it is called.
    own_file: Option<(&'a Store, String)>,
    /// Gone where nobody waits any more: a thread is not ended by that.
    wanted: Weak<()>,
}

impl Write for Output<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.wanted.strong_count() == 0 {
            return Err(io::Error::other("the snapshot was given up"));
        }
        if let Some(file) = &mut self.file {
            return file.write(bytes);
        }
        if let Some((store, path)) = self.own_file.as_ref().filter(|_| self.bytes.len() + bytes.len() > PACKED_BYTES_MAX) {
            let draft = store.begin(path).map_err(io::Error::other)?;
            let file = self.file.insert(BufWriter::with_capacity(FILE_BUFFER_BYTES, draft));
            file.write_all(&std::mem::take(&mut self.bytes))?;
            return file.write(bytes);
        }
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Why there is no snapshot where a state could not be encoded; `path`: the file that it was to go into.
fn not_encoded(meta: &StateMeta, task: TaskId, path: &str, error: EncodeError) -> Stopped {
    match error {
        EncodeError::Abandoned(_) => Stopped::GivenUp,
        EncodeError::Database(error) => error.into(),
        EncodeError::TooLarge { counted, limit } => Stopped::Declined(DeclineReason::StateTooLarge {
            uid: meta.uid.clone(),
            state: meta.name.clone(),
            subtask: task.subtask,
            size_bytes: counted,
            limit_bytes: limit,
        }),
        EncodeError::Write(error) => not_stored(path, &error),
        EncodeError::Arrow(_) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let text = format!("operator \"{}\", state \"{}\": {error}: {cause}", meta.uid, meta.name);
            Stopped::Declined(DeclineReason::Declined(text))
        }
    }
}

/// A file of a snapshot could not be written.
pub fn not_stored(path: &str, cause: &dyn std::fmt::Display) -> Stopped {
    Stopped::Declined(DeclineReason::StorageWrite { path: path.into(), cause: cause.to_string() })
}

/// The key groups of a task's states.
pub fn key_groups(plan: &Plan, task: TaskId, kind: StateKind) -> KeyGroupRange {
    match kind {
        StateKind::OperatorList | StateKind::OperatorUnion | StateKind::OperatorBroadcast => {
            KeyGroupRange::all(plan.max_parallelism)
        }
        StateKind::Keyed => KeyGroupRange::of_subtask(task.subtask.0, plan.vertex(task.vertex).parallelism, plan.max_parallelism),
    }
}
