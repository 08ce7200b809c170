//! Functions over transactions: one that finds fraud, one that adds up what an account has spent, one that converts amounts by
//! rates that change, one that tells of sittings, with a trigger that tells of large ones early.
//!
//! Each is a type with a trait, and a declaration of the columns that it takes and gives. `main.rs` registers them under the
//! names that `job.yaml` uses; `tests/` runs them without a cluster.

mod convert;
mod detect;
mod sitting;
mod spent;

pub use convert::Convert;
pub use detect::Detect;
pub use sitting::{Alarm, Sitting};
pub use spent::Spent;

use levada_taskmanager::Builder;

/// Adds all functions.
pub fn register(builder: Builder) -> Builder {
    builder
        .keyed_process(detect::declaration(), Detect::new)
        .reduce::<Spent>(spent::declaration())
        .broadcast_process(convert::declaration(), |_| Ok(Convert))
        .window(sitting::declaration(), |_| Ok(Sitting))
        .trigger(sitting::alarm_declaration(), Alarm::new)
}

pub use convert::declaration as convert_declaration;
pub use detect::declaration as detect_declaration;
pub use sitting::{alarm_declaration, declaration as sitting_declaration};
pub use spent::declaration as spent_declaration;
