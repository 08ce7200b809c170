//! The computing half of an upload, on blocking threads: states to bytes, sinks' durable work.

use std::sync::Arc;

use bytes::Bytes;
use levada_common::checkpoint::{DeclineReason, Handle, StateHandle, StateKind};
use levada_common::fault::Faulty;
use levada_common::ids::{SubtaskIndex, TaskId};
use levada_common::keys::KeyGroupRange;
use levada_common::plan::Plan;
use levada_engine::sink::Durable;
use levada_state::cold::ColdError;
use levada_state::format::{EncodeError, EncodedState, SizeLimit, encode, encode_database};
use levada_state::snapshot::{Contents, StateMeta, StatePart};
use tokio::task::JoinSet;

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
    /// Everything but where its bytes are: they are in the handle, inline.
    pub state: StateHandle,
    /// Its bytes.
    pub bytes: Bytes,
}

/// Encodes all states at once, each on a blocking thread, and does the durable work beside it; in the order of `parts`.
///
/// The first error wins; what still runs is not waited for.
pub async fn encode_all(
    plan: &Arc<Plan>,
    task: TaskId,
    parts: Vec<StatePart>,
    durable: Vec<Durable>,
    state_bytes_max: Option<u64>,
) -> Result<Vec<Encoded>, Stopped> {
    let mut work = JoinSet::new();
    let count = parts.len();
    for (place, part) in parts.into_iter().enumerate() {
        let plan = Arc::clone(plan);
        work.spawn_blocking(move || encode_state(&plan, task, part, state_bytes_max).map(|encoded| Some((place, encoded))));
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

fn encode_state(plan: &Plan, task: TaskId, part: StatePart, bytes_max: Option<u64>) -> Result<Encoded, Stopped> {
    let StatePart { meta, contents } = part;
    let (mut bytes, limit) = (Vec::new(), SizeLimit { bytes_max });
    let written = match contents {
        Contents::Pieces(pieces) => encode(&meta, plan.max_parallelism, pieces, limit, &mut bytes),
        Contents::Database(database) => encode_database(&meta, plan.max_parallelism, database.as_ref(), limit, &mut bytes),
    };
    let written = written.map_err(|error| not_encoded(&meta, task, error))?;
    let bytes = Bytes::from(bytes);
    let state = handle_of(plan, task, meta, &written, Handle::Inline(bytes.clone()));
    Ok(Encoded { state, bytes })
}

/// Why there is no snapshot where a state could not be encoded.
pub fn not_encoded(meta: &StateMeta, task: TaskId, error: EncodeError) -> Stopped {
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
        EncodeError::Write(_) | EncodeError::Arrow(_) => {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            let text = format!("operator \"{}\", state \"{}\": {error}: {cause}", meta.uid, meta.name);
            Stopped::Declined(DeclineReason::Declined(text))
        }
    }
}

/// The handle of a state that was encoded.
pub fn handle_of(plan: &Plan, task: TaskId, meta: StateMeta, written: &EncodedState, handle: Handle) -> StateHandle {
    StateHandle {
        key_groups: key_groups(plan, task, meta.kind),
        uid: meta.uid,
        name: meta.name,
        kind: meta.kind,
        schema: meta.schema,
        subtask: SubtaskIndex(task.subtask.0),
        rows: written.rows,
        crc32c: written.crc32c,
        handle,
    }
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
