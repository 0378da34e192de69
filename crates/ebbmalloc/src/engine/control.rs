//! Changes options while the program runs.

use crate::engine::Engine;
use crate::options::{PROFILING, Place, ProfileChoice, SetError, StatsChoice, TELLING};
use crate::platform::os::Os;
use crate::platform::sync::Ordering;
use crate::telemetry::tuning::PROFILE_MEAN_BYTES;

impl<O: Os> Engine<O> {
    /// Changes an option from now on. Its name is that of the variable in lower case, without the
    /// prefix, and its values are those of the variable.
    ///
    /// # Errors
    /// The reason why it stays as it was.
    pub fn set(&self, name: &str, value: &str) -> Result<(), SetError> {
        if !self.ready() {
            return Err(SetError::NotNow);
        }
        let mut options = self.setup().options;
        let place = options.change(name.as_bytes(), value.as_bytes())?;
        let is_done = match place {
            Place::profile if !PROFILING => false,
            Place::profile => match options.profile {
                ProfileChoice::Off => {
                    self.stop_profile();
                    true
                }
                ProfileChoice::Usual => self.start_profile(PROFILE_MEAN_BYTES),
                ProfileChoice::Mean(mean_bytes) => self.start_profile(mean_bytes.get() as u64),
            },
            Place::stats if TELLING => self.change_stats(options.stats),
            _ => return self.change_live(place, &options),
        };
        if is_done { Ok(()) } else { Err(SetError::NotNow) }
    }

    /// Sets the format of the statistics at exit. Operations are counted from the start or never.
    fn change_stats(&self, stats: StatsChoice) -> bool {
        self.stats_at_exit.store(stats as u8 + 1, Ordering::Relaxed);
        if let Some(hooks) = self.os.hooks()
            && !self.has_exit_hook.swap(true, Ordering::Relaxed)
        {
            self.os.at_exit(hooks.at_exit, true);
        }
        true
    }
}
