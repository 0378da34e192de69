//! Changes the options that another process may change too (`ebb set`). To change them takes no
//! lock but those of the page heap and of near caches, and allocates nothing.

use core::num::NonZeroUsize;

use crate::backend::region::Region;
use crate::engine::{Engine, SafetyMode};
use crate::options::{DelayChoice, LimitChoice, Options, Place, ScavengerChoice, SetError};
use crate::platform::os::Os;
use crate::platform::sync::Ordering;

impl<O: Os> Engine<O> {
    /// Gives the option at this place the value that it has in `options`, in an engine that is set
    /// up.
    pub(crate) fn change_live(&self, place: Place, options: &Options) -> Result<(), SetError> {
        match place {
            Place::limit => return self.change_limit(options),
            Place::huge if self.setup().safety_mode == SafetyMode::Hardened => {
                return Err(SetError::NotNow);
            }
            Place::huge => self.pages().choose_huge(options.huge),
            Place::purge_delay => {
                self.set_purge_delay(options.purge_delay);
                // A thread that has not seen it may still keep a block.
                self.drain_near(false);
            }
            Place::scavenger if self.scavenger.is_off() => return Err(SetError::OnlyAtStart),
            Place::scavenger => {
                let is_off = options.scavenger == ScavengerChoice::Off;
                self.scavenger.is_paused.store(is_off, Ordering::Relaxed);
            }
            _ => return Err(SetError::OnlyAtStart),
        }
        Ok(())
    }

    /// Follows another process that asks for "NAME=VALUE".
    pub(crate) fn change_by_text(&self, text: &[u8]) -> Result<(), SetError> {
        let mut parts = text.splitn(2, |&byte| byte == b'=');
        let (Some(name), Some(value)) = (parts.next(), parts.next()) else {
            return Err(SetError::UnknownValue);
        };
        let mut options = self.setup().options;
        let place = options.change(name, value)?;
        self.change_live(place, &options)
    }

    /// Sets another limit, and purges free memory beyond it. Blocks beyond it stay.
    fn change_limit(&self, options: &Options) -> Result<(), SetError> {
        self.drain_near(false);
        let mut pages = self.pages();
        let memory_bytes = NonZeroUsize::new(pages.retention.memory_bytes);
        let memory_bytes = memory_bytes.map(|bytes| bytes.get() as u64);
        let Some(limit) = Self::limit_units(options.limit, memory_bytes) else {
            return Err(SetError::NotNow);
        };
        pages.limit = limit;
        if let Some(limit) = limit {
            let keep = limit.get().saturating_sub(pages.counts.in_use);
            pages.purge(keep);
        }
        Ok(())
    }

    /// A limit in units: the inner `None` for no limit, the outer one for a share of an unknown
    /// amount.
    pub(crate) fn limit_units(
        choice: LimitChoice,
        memory_bytes: Option<u64>,
    ) -> Option<Option<NonZeroUsize>> {
        let bytes = match choice {
            LimitChoice::None => return Some(None),
            LimitChoice::Bytes(bytes) => bytes,
            LimitChoice::Percent(percent) => (memory_bytes? as u128 * percent as u128 / 100) as u64,
        };
        let units = NonZeroUsize::new(bytes as usize / Region::UNIT_COST);
        Some(units.or(Some(NonZeroUsize::MIN)))
    }

    /// Sets how long free memory stays that is not needed.
    pub(crate) fn set_purge_delay(&self, delay: DelayChoice) {
        self.pages.lock().retention.delay = delay;
        let round_ms = if let DelayChoice::Ms(ms) = delay { ms } else { 0 };
        self.scavenger.round_ms.store(round_ms, Ordering::Relaxed);
        self.scavenger.purges_at_once.store(delay == DelayChoice::Ms(0), Ordering::Relaxed);
    }
}
