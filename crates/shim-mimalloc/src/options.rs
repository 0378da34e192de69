//! Maps options of mimalloc to ebbmalloc's.
//!
//! Three have a counterpart. The others keep the value 0, whatever the program sets: it can see
//! that they have no effect.

use core::ffi::{CStr, c_int, c_long};
use core::sync::atomic::{AtomicI64, Ordering};

use crate::export;

/// Numbers in the enum of `mimalloc.h`.
const SHOW_STATS: c_int = 1;
const PURGE_DELAY: c_int = 15;
const ALLOW_THP: c_int = 37;

/// An option with a counterpart: its number, and its value, [`UNSET`] before the program sets it.
struct Known {
    option: c_int,
    value: AtomicI64,
    initial: c_long,
}

const UNSET: i64 = i64::MIN;

/// The milliseconds that ebbmalloc keeps free memory for are no fixed number; 200 stands for that.
static KNOWN: [Known; 3] = [
    Known { option: SHOW_STATS, value: AtomicI64::new(UNSET), initial: 0 },
    Known { option: PURGE_DELAY, value: AtomicI64::new(UNSET), initial: 200 },
    Known { option: ALLOW_THP, value: AtomicI64::new(UNSET), initial: 1 },
];

fn known(option: c_int) -> Option<&'static Known> {
    KNOWN.iter().find(|known| known.option == option)
}

/// Sets ebbmalloc's option. False if there is none, or not with this value.
fn apply(option: c_int, value: c_long) -> bool {
    let set = |name: &CStr, value: &CStr| {
        // SAFETY: both are C strings.
        unsafe { shim::ebb_ctl(name.as_ptr(), value.as_ptr()) == 0 }
    };
    match option {
        SHOW_STATS => set(c"stats", if value == 0 { c"0" } else { c"1" }),
        ALLOW_THP => set(c"huge", if value == 0 { c"never" } else { c"auto" }),
        PURGE_DELAY => match decimal(value, &mut [0; 24]) {
            Some(text) => set(c"purge_delay", text),
            None => false,
        },
        _ => false,
    }
}

/// A number in decimal digits; `None` below 0.
fn decimal(value: c_long, buffer: &mut [u8; 24]) -> Option<&CStr> {
    let mut rest = u64::try_from(value).ok()?;
    let mut at = buffer.len() - 1;
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    CStr::from_bytes_with_nul(&buffer[at..]).ok()
}

fn get(option: c_int) -> c_long {
    known(option).map_or(0, |known| match known.value.load(Ordering::Relaxed) {
        UNSET => known.initial,
        value => value,
    })
}

fn set(option: c_int, value: c_long) {
    if let Some(known) = known(option)
        && apply(option, value)
    {
        known.value.store(value, Ordering::Relaxed);
    }
}

fn is_set(option: c_int) -> bool {
    known(option).is_some_and(|known| known.value.load(Ordering::Relaxed) != UNSET)
}

export! {
    fn mi_option_get = (option: c_int) -> c_long {
        get(option)
    }

    fn mi_option_get_clamp = (option: c_int, least: c_long, most: c_long) -> c_long {
        get(option).max(least).min(most)
    }

    fn mi_option_get_size = (option: c_int) -> usize {
        get(option).max(0) as usize
    }

    fn mi_option_set = (option: c_int, value: c_long) -> () {
        set(option, value);
    }

    fn mi_option_set_default = (option: c_int, value: c_long) -> () {
        if !is_set(option) {
            set(option, value);
        }
    }

    fn mi_option_is_enabled = (option: c_int) -> bool {
        get(option) != 0
    }

    fn mi_option_enable = (option: c_int) -> () {
        set(option, 1);
    }

    fn mi_option_disable = (option: c_int) -> () {
        set(option, 0);
    }

    fn mi_option_set_enabled = (option: c_int, enable: bool) -> () {
        set(option, c_long::from(enable));
    }

    fn mi_option_set_enabled_default = (option: c_int, enable: bool) -> () {
        if !is_set(option) {
            set(option, c_long::from(enable));
        }
    }
}
