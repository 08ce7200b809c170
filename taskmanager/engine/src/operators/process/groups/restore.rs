//! What a snapshot had, back into groups: windows first, then what each has.

use levada_common::plan::ProcessSpec;
use levada_common::planned_state::{PLACED_BY, ROW_NUMBERS, SESSION_BOUNDS};
use levada_common::time::Watermark;

use super::contents::{Belongs, Contents, Returned};
use super::table::{NO_GROUP, namespace};
use super::{GroupWindows, Running};
use crate::error::EngineError;
use crate::operator::RestoredState;
use crate::operators::process::states;
use crate::operators::window::Window;

impl<C: Contents> GroupWindows<C> {
    /// Takes the states of a snapshot in. Windows that are over by now, and take no more rows, are left out: they were given. By processing
    /// time what was given is not there.
    ///
    /// Errors: `Restore` for a state that it does not have, or has otherwise, and for rows of no session.
    pub(super) fn restore(&mut self, mut restored: Vec<RestoredState>) -> Result<(), EngineError> {
        let (uid, failed) = (self.contents.frame().uid.clone(), self.failed());
        self.contents.take_stored(&mut restored)?;
        let Some(Running { context, inner, .. }) = &mut self.running else { return Ok(()) };
        self.clock.restore(&uid, context, &mut restored)?;
        match self.clock.now() {
            None => inner.set_watermark(Watermark(self.clock.watermark())),
            Some(now) => inner.set_processing_time(now),
        }
        let key_groups = context.key_groups;
        // What a store's rows were numbered and placed by, and where the sessions were of a window that gave its rows once.
        let of_store = |state: &RestoredState| [ROW_NUMBERS, PLACED_BY, SESSION_BOUNDS].contains(&state.name.as_str());
        let restored = restored.into_iter().filter(|state| !of_store(state));
        let (own, others): (Vec<_>, Vec<_>) = restored.partition(|state| self.contents.has_state(&state.name));
        let own = self.contents.read(own, key_groups)?;
        let running = self.running();
        states::restore(&uid, &mut running.inner, &running.context, others)?;
        let mut found = Vec::new();
        let windows = running.windows.for_each_key(&mut running.inner.keyed, |key, name, (start, end)| {
            let name = name.expect("it is kept per window");
            found.push((key, Window { start: name.start, end: name.end }, Window { start: *start, end: *end }));
        });
        windows.map_err(|source| failed(source.into()))?;
        self.restore_windows(&found);
        let (contents, mut place) = self.contents();
        contents.stand(&mut place);
        own.into_iter().try_for_each(|returned| self.take_back(returned))?;
        while let Some(returned) = self.contents.next_stored()? {
            self.take_back(returned)?;
        }
        // `is_late` says no by processing time.
        let given: Vec<u32> = (0..self.groups.numbers() as u32)
            .filter(|group| self.groups.has(*group) && self.is_late(self.groups.get(*group).window))
            .collect();
        self.forget(&given);
        Ok(())
    }

    /// Windows of keys: the id of each key, what the window was when it began, what it is.
    fn restore_windows(&mut self, found: &[(u32, Window, Window)]) {
        if !self.sessions.is_empty() {
            for (key, name, window) in found {
                let group = self.groups.open(*key, *name, *window);
                self.schedule(group);
            }
            return;
        }
        let keys: Vec<u32> = found.iter().map(|(key, ..)| *key).collect();
        let windows: Vec<Window> = found.iter().map(|(_, name, _)| *name).collect();
        self.enter(&keys, &windows);
    }

    /// The groups of these keys in these windows, made where they are not there.
    fn enter(&mut self, keys: &[u32], windows: &[Window]) -> Vec<u32> {
        let (mut groups, mut made) = (Vec::new(), Vec::new());
        self.groups.enter(keys, windows, &mut groups, &mut made);
        made.into_iter().for_each(|group| self.schedule(group));
        groups
    }

    fn take_back(&mut self, returned: Returned<C::Saved>) -> Result<(), EngineError> {
        let Returned { keys, rows, belongs, state, saved } = returned;
        let mut ids = Vec::new();
        self.inner().keyed.intern(&keys, rows, &mut ids);
        let groups = match &belongs {
            Belongs::In(windows) if self.sessions.is_empty() => self.enter(&ids, windows),
            Belongs::In(sessions) => self.sessions_of(&ids, sessions),
            Belongs::At(times) => self.sessions_at(&ids, times),
        };
        if let (Some(at), Belongs::At(times)) = (groups.iter().position(|group| *group == NO_GROUP), &belongs) {
            let reason = format!("a row at {} is in no session of its key in state \"{}\"", times[at], ProcessSpec::WINDOWS);
            return Err(EngineError::Restore { uid: self.contents.frame().uid.clone(), state, reason });
        }
        let (contents, mut place) = self.contents();
        contents.put_back(&mut place, saved, &groups)?;
        contents.settle(&mut place)
    }

    /// The sessions of keys that were these when they began. Of a job without a trigger nothing says what they were: they are them.
    fn sessions_of(&mut self, keys: &[u32], sessions: &[Window]) -> Vec<u32> {
        let mut groups = Vec::with_capacity(keys.len());
        for (key, session) in keys.iter().zip(sessions) {
            self.groups.find(&[*key], &[namespace(*session)], &mut groups);
            if groups.last() == Some(&NO_GROUP) {
                let group = self.groups.open(*key, *session, *session);
                self.schedule(group);
                groups.pop();
                groups.push(group);
            }
        }
        groups
    }

    /// The sessions of keys that have these times.
    fn sessions_at(&self, keys: &[u32], times: &[i64]) -> Vec<u32> {
        let at = |(key, time): (&u32, &i64)| {
            let mut near = self.groups.touching(*key, Window { start: *time, end: *time });
            near.find(|group| self.groups.get(*group).window.has(*time)).unwrap_or(NO_GROUP)
        };
        keys.iter().zip(times).map(at).collect()
    }
}
