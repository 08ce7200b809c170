//! Reads when a window gives results: `early`, `allowed_lateness`, `late` and `accumulate` of a window, beside its kind.

use super::report::{At, Fields, Keys, Report};
use super::tree::shown;
use crate::plan::{FiringSpec, Trigger};

const TRIGGER: Keys = Keys {
    allowed: &["every", "rows"],
    later: &[],
    synonyms: &[("interval", "every"), ("delay", "every"), ("time", "every"), ("count", "rows"), ("records", "rows")],
};

/// The keys that are read here.
pub(super) const FIRING_KEYS: [&str; 4] = ["early", "allowed_lateness", "late", "accumulate"];

/// What the window's map says of it; `None` where it says nothing, or where it makes no sense, which is reported. A trigger may be what
/// gives results.
pub(super) fn read_firing(fields: &Fields<'_>, report: &mut Report) -> Option<FiringSpec> {
    let [early, lateness, late, accumulate] = FIRING_KEYS.map(|key| fields.get(key));
    if [&early, &lateness, &late, &accumulate].into_iter().all(Option::is_none) {
        return None;
    }
    let (has_lateness, has_trigger) = (lateness.is_some(), fields.get("trigger").is_some());
    let firing = FiringSpec {
        early: early.as_ref().and_then(|at| read_trigger(at, report)),
        lateness_ms: lateness.and_then(|at| report.duration_ms(&at, 0)).unwrap_or(0) as i64,
        late: late.as_ref().and_then(|at| read_trigger(at, report)),
        accumulate: accumulate.is_none_or(|at| read_accumulate(&at, report)),
    };
    if late.is_some() && !has_lateness {
        report.error(
            &fields.path_of("late"),
            "`late` says how often late rows change a result, and none are taken in without `allowed_lateness`",
        );
    }
    if early.is_none() && !has_lateness && !has_trigger {
        let message = "a window gives one result when it is over, so there is nothing to accumulate; give it `early`, `trigger` or \
                       `allowed_lateness`";
        report.error(&fields.path_of("accumulate"), message);
    }
    let says = firing.early.is_some() || firing.lateness_ms > 0 || (has_trigger && !firing.accumulate);
    says.then_some(firing)
}

/// `{ every, rows }`, at least one of them.
fn read_trigger(at: &At<'_>, report: &mut Report) -> Option<Trigger> {
    let fields = report.fields(at, &TRIGGER)?;
    let every = fields.get("every").map(|at| report.duration_ms(&at, 1).map(|ms| ms as i64));
    let rows = fields.get("rows").map(|at| report.integer(&at, 1..=u32::MAX));
    if every.is_none() && rows.is_none() {
        report.error(&at.path, "`every`, a duration, or `rows`, a number, is expected, such as { every: 10s }");
    }
    let (every_ms, rows) = (every.flatten(), rows.flatten());
    (every_ms.is_some() || rows.is_some()).then_some(Trigger { every_ms, rows })
}

fn read_accumulate(at: &At<'_>, report: &mut Report) -> bool {
    match report.text(at, "`true` or `false`") {
        Some("false") => false,
        Some("true") | None => true,
        Some(text) => {
            report.error(&at.path, format!("`true` or `false` is expected, found \"{}\"", shown(text)));
            true
        }
    }
}
