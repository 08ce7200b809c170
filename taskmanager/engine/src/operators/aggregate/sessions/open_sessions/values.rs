//! The distinct values of sessions: which session each row of a batch came to be in, and what is computed of them.

use super::*;

impl OpenSessions {
    /// Puts the values of a batch's rows, which were joined, into their sessions.
    pub(super) fn tell_apart(&mut self, shape: &Shape, batch: &Collapse, columns: &[ArrayRef]) -> Result<(), EngineError> {
        let Self { values: Some(values), moves, keys, .. } = self else { return Ok(()) };
        let mut session_of = vec![NONE; batch.parts().len()];
        for (sessions, parts) in [&moves.opened, &moves.joined] {
            sessions.iter().zip(parts).for_each(|(session, part)| session_of[*part as usize] = *session);
        }
        // Rows that were left out are in none.
        let sessions: Vec<u32> = batch.of_rows().iter().map(|part| session_of[*part as usize]).collect();
        let mut columns = columns.iter().enumerate();
        columns.try_for_each(|(column, of_rows)| values.add(shape, keys, column, (of_rows, &sessions)))
    }

    /// The results of these sessions.
    pub(super) fn results(&self, sessions: &[u32]) -> Vec<ArrayRef> {
        let mut results = self.set.read(Rows::Ids(sessions));
        if let Some(values) = &self.values {
            values.read_into(&mut results, sessions);
        }
        results
    }

    /// Takes the values that the snapshot had of the sessions that were restored.
    pub(super) fn restore_values(
        &mut self,
        shape: &Shape,
        key_groups: KeyGroupRange,
        restored: &[RestoredState],
    ) -> Result<(), EngineError> {
        let Self { values: Some(values), keys, newest, sessions, .. } = self else { return Ok(()) };
        // A value is noted with a moment of its session.
        let session_at = |key: u32, time: i64| {
            let some = |session: u32| (session != NONE).then_some(session);
            let mut of_key = std::iter::successors(some(newest[key as usize]), |at| some(sessions[*at as usize].older));
            of_key.find(|at| (sessions[*at as usize].start..sessions[*at as usize].end).contains(&time))
        };
        values.restore(shape, keys, (key_groups, restored), session_at)
    }
}
