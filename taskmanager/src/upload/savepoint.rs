//! Databases on their way into a savepoint: each of their states becomes a file in the open format.
//!
//! A state is encoded as it is read, batch by batch, into a file without a name on the disk that the database is on, and goes to the
//! storage out of it in parts: a state of any size takes the memory of a few batches. One state after the other, so that the disk
//! has room for the largest of them.

use std::io::{BufWriter, Write};
use std::sync::Arc;

use levada_common::checkpoint::{DeclineReason, Handle, StateHandle};
use levada_common::ids::TaskId;
use levada_common::storage::ScratchFile;
use levada_state::format::{EncodedState, SizeLimit, encode_database};
use levada_state::snapshot::{Contents, DatabaseSnapshot, StateMeta, StatePart};

use super::Uploads;
use super::database::blocking;
use super::encode::{Stopped, handle_of, not_encoded};
use super::store::Store;

/// A state in a database.
type Stored = (StateMeta, Arc<dyn DatabaseSnapshot>);

/// Takes the states that are in databases out of `parts`.
pub fn split(parts: Vec<StatePart>) -> (Vec<StatePart>, Vec<Stored>) {
    let (mut others, mut stored) = (Vec::new(), Vec::new());
    for StatePart { meta, contents } in parts {
        match contents {
            Contents::Database(database) => stored.push((meta, database)),
            Contents::Pieces(_) => others.push(StatePart { meta, contents }),
        }
    }
    (others, stored)
}

/// Writes the states to files of their own.
pub async fn store(uploads: &Uploads, store: &Store<'_>, task: TaskId, stored: Vec<Stored>) -> Result<Vec<StateHandle>, Stopped> {
    let mut states = Vec::with_capacity(stored.len());
    for (meta, database) in stored {
        let max_parallelism = uploads.plan.max_parallelism;
        let of_task = meta.clone();
        let (written, file) = blocking(move || encode(&of_task, max_parallelism, task, database.as_ref())).await?;
        let path = store.name(&meta.uid, &meta.name, task.subtask);
        store.put_file(&path, &file).await?;
        states.push(handle_of(&uploads.plan, task, meta, &written, Handle::File { path, offset: 0, length: file.length() }));
    }
    Ok(states)
}

/// Encodes a state into a file without a name.
fn encode(
    meta: &StateMeta,
    max_parallelism: u32,
    task: TaskId,
    database: &dyn DatabaseSnapshot,
) -> Result<(EncodedState, ScratchFile), Stopped> {
    let folder = database.folder()?;
    let failed = |error: std::io::Error| {
        let text = format!("operator \"{}\", state \"{}\"", meta.uid, meta.name);
        let text = format!("{text}: writing a file for a savepoint to \"{}\" failed: {error}", folder.display());
        Stopped::Declined(DeclineReason::Declined(text))
    };
    let file = ScratchFile::begin(&folder).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let written = encode_database(meta, max_parallelism, database, SizeLimit { bytes_max: None }, &mut out);
    let written = written.map_err(|error| not_encoded(meta, task, error))?;
    out.flush().map_err(failed)?;
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    Ok((written, ScratchFile::new(file).map_err(failed)?))
}
