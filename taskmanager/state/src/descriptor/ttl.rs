//! How long an entry of a state lives.
//!
//! An entry has a *stamp*: the time of its last touch. It is expired from `stamp + ttl` on, and what is expired is never returned,
//! whether it has been removed yet or not. Arithmetic is exact for every time and length: an entry whose end lies beyond all
//! time never expires.

use std::fmt;
use std::time::Duration;

use levada_common::human::HumanDuration;
use levada_common::state_schema::Stamps;

/// Which clock decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TtlTime {
    /// The task's processing time.
    Processing,
    /// Event time: a stamp is the time of the row that touched the entry, and now is the watermark.
    Event,
}

impl TtlTime {
    /// The stamps of a state by this clock.
    pub fn stamps(self) -> Stamps {
        match self {
            Self::Processing => Stamps::Processing,
            Self::Event => Stamps::Event,
        }
    }
}

/// What touches an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TtlUpdate {
    /// Creating and writing it.
    OnCreateAndWrite,
    /// Reading it too.
    OnReadAndWrite,
}

/// How long an entry lives after its last touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Ttl {
    /// Which clock decides.
    pub time: TtlTime,
    /// What touches an entry.
    pub update: TtlUpdate,
    /// How long, in milliseconds; at least 1.
    pub ttl_ms: u64,
}

impl Ttl {
    /// In processing time, from the last write on.
    pub fn processing(ttl: Duration) -> Self {
        Self { time: TtlTime::Processing, update: TtlUpdate::OnCreateAndWrite, ttl_ms: whole_ms(ttl) }
    }

    /// In event time, from the last write on.
    pub fn event(ttl: Duration) -> Self {
        Self { time: TtlTime::Event, ..Self::processing(ttl) }
    }

    /// The same, from the last read or write on.
    #[must_use]
    pub fn on_read(self) -> Self {
        Self { update: TtlUpdate::OnReadAndWrite, ..self }
    }

    /// Whether an entry with this stamp is expired at `now_ms`.
    ///
    /// Units: milliseconds of the clock that decides. A stamp ahead of now (a clock set back, a row ahead of the watermark) is
    /// not expired.
    #[inline]
    pub fn is_expired(&self, stamp_ms: i64, now_ms: i64) -> bool {
        self.expired_up_to(now_ms).is_some_and(|up_to| stamp_ms <= up_to)
    }

    /// The first time at which an entry with this stamp is expired; `None` where it never is.
    #[inline]
    pub fn expires_at(&self, stamp_ms: i64) -> Option<i64> {
        stamp_ms.checked_add_unsigned(self.ttl_ms)
    }

    /// The greatest stamp that is expired at `now_ms`; `None` where none is. To look at many stamps with one comparison each.
    #[inline]
    pub fn expired_up_to(&self, now_ms: i64) -> Option<i64> {
        now_ms.checked_sub_unsigned(self.ttl_ms)
    }

    /// The stamp of an entry that is touched: it never goes back, so that a late row does not shorten a life.
    #[inline]
    pub fn touched(stamp_ms: Option<i64>, time_ms: i64) -> i64 {
        stamp_ms.map_or(time_ms, |stamp_ms| stamp_ms.max(time_ms))
    }
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Display for Ttl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = match self.time {
            TtlTime::Processing => "processing",
            TtlTime::Event => "event",
        };
        let update = match self.update {
            TtlUpdate::OnCreateAndWrite => "the last write",
            TtlUpdate::OnReadAndWrite => "the last read or write",
        };
        write!(f, "a life of {} of {time} time after {update}", HumanDuration::from_ms(self.ttl_ms))
    }
}
