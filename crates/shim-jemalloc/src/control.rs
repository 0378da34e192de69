//! Passes values between a call of `mallctl` and a node.

use core::ffi::{c_int, c_void};

/// What the program passed.
pub struct Call {
    /// The numbers in the name.
    pub numbers: [usize; 2],
    old: *mut c_void,
    old_bytes: *mut usize,
    new: *mut c_void,
    new_bytes: usize,
}

impl Call {
    /// # Safety
    /// As for mallctl(3): `old` has room for `old_bytes` bytes, and `new` has `new_bytes`.
    pub unsafe fn new(
        numbers: [usize; 2],
        old: *mut c_void,
        old_bytes: *mut usize,
        new: *mut c_void,
        new_bytes: usize,
    ) -> Self {
        Self { numbers, old, old_bytes, new, new_bytes }
    }

    /// Stores a value that the program can only read.
    pub fn read<T: Copy>(&self, value: T) -> c_int {
        if self.gives() {
            return libc::EPERM;
        }
        self.give(value)
    }

    /// Stores a value, if the program asks for it. EINVAL if it has another size; then the program
    /// gets as many bytes as it has room for.
    pub fn give<T: Copy>(&self, value: T) -> c_int {
        if self.old.is_null() || self.old_bytes.is_null() {
            return 0;
        }
        // SAFETY: `new` demands room for that many bytes.
        unsafe {
            let room = self.old_bytes.read();
            let bytes = room.min(size_of::<T>());
            self.old.copy_from_nonoverlapping((&raw const value).cast(), bytes);
            self.old_bytes.write(bytes);
            if room == size_of::<T>() { 0 } else { libc::EINVAL }
        }
    }

    /// Whether the program asks for a value of this type. If not, it is told that it gets 0 bytes.
    pub fn has_room_for<T>(&self) -> bool {
        if self.old.is_null() || self.old_bytes.is_null() {
            return false;
        }
        // SAFETY: `new` demands that it is readable and writable.
        unsafe {
            let has_room = self.old_bytes.read() == size_of::<T>();
            if !has_room {
                self.old_bytes.write(0);
            }
            has_room
        }
    }

    /// Whether the program wants to write.
    pub fn gives(&self) -> bool {
        !self.new.is_null() || self.new_bytes != 0
    }

    /// The value that the program wants to write, if any. EINVAL if it has another size.
    pub fn taken<T: Copy>(&self) -> Result<Option<T>, c_int> {
        if self.new.is_null() {
            return Ok(None);
        }
        if self.new_bytes != size_of::<T>() {
            return Err(libc::EINVAL);
        }
        // SAFETY: `new` demands that many bytes.
        Ok(Some(unsafe { self.new.cast::<T>().read_unaligned() }))
    }

    /// Runs what has no value.
    pub fn run(&self, work: impl FnOnce() -> c_int) -> c_int {
        let has_values = !self.old.is_null() || !self.old_bytes.is_null() || self.gives();
        if has_values { libc::EPERM } else { work() }
    }
}
