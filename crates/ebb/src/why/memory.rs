//! Reads the memory of another process while it runs, from /proc/PID/mem and /proc/PID/pagemap. It
//! stops nothing and needs no symbols.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::Context;
use ebbmalloc::internals::{Beacon, ProcessMemory};

use super::smaps::Mapping;
use crate::stop::Stop;

/// The bit of an entry in /proc/PID/pagemap that says that the page is resident.
const PRESENT: u64 = 1 << 63;

/// The most heaps that are looked at, requests to the kernel for them, and ranges found resident. A
/// report must end also if the process lies about its heaps. No real one comes near: 2^26
/// requests serve terabytes of small blocks.
const HEAPS_MAX: usize = 64;
const REQUESTS_MAX: usize = 1 << 26;
const RANGES_MAX: usize = 1 << 24;

/// A process that may be read.
pub struct Process {
    memory: File,
    pagemap: File,
    page: usize,
    /// Whether the kernel has PAGEMAP_SCAN.
    scans: bool,
    /// Requests for the memory of heaps that are left.
    left: usize,
    /// The resident ranges found so far, in the order of the queries.
    pub resident: Vec<Range<usize>>,
}

/// A heap of ebbmalloc in a process.
pub enum Heap {
    Readable(Box<Beacon>),
    /// A heap of a version that this program does not understand.
    OtherVersion(String),
}

impl Process {
    pub fn open(pid: libc::pid_t) -> anyhow::Result<Self> {
        Self::with_memory(pid, File::options().read(true))
    }

    /// Opens a process whose memory may also be written.
    pub fn open_for_writing(pid: libc::pid_t) -> anyhow::Result<Self> {
        Self::with_memory(pid, File::options().read(true).write(true))
    }

    fn with_memory(pid: libc::pid_t, options: &OpenOptions) -> anyhow::Result<Self> {
        let folder = Path::new("/proc").join(pid.to_string());
        let refused = |error| refused(pid, error);
        Ok(Self {
            memory: options.open(folder.join("mem")).map_err(refused)?,
            pagemap: File::open(folder.join("pagemap")).map_err(refused)?,
            page: rustix::param::page_size(),
            scans: true,
            left: REQUESTS_MAX,
            resident: Vec::new(),
        })
    }

    /// Finds the heaps: each has a beacon at the beginning of an anonymous mapping.
    pub fn heaps(&self, mappings: &[Mapping]) -> Vec<Heap> {
        let mut heaps = Vec::new();
        for mapping in mappings.iter().filter(|mapping| mapping.is_private_memory()) {
            let mut bytes = [0; Beacon::SIZE];
            let start = mapping.range.start;
            if self.read_at(start, &mut bytes) {
                heaps.extend(Beacon::read(&bytes, start).map(|found| match found {
                    Ok(beacon) => Heap::Readable(Box::new(beacon)),
                    Err(other) => Heap::OtherVersion(other.version().to_string()),
                }));
            }
            if heaps.len() == HEAPS_MAX {
                break;
            }
        }
        heaps
    }

    pub fn page(&self) -> usize {
        self.page
    }

    /// Reads bytes; returns whether that succeeded.
    pub fn read_at(&self, address: usize, bytes: &mut [u8]) -> bool {
        self.memory.read_exact_at(bytes, address as u64).is_ok()
    }

    /// Writes bytes; returns whether that succeeded.
    pub fn write_at(&self, address: usize, bytes: &[u8]) -> bool {
        self.memory.write_all_at(bytes, address as u64).is_ok()
    }

    /// Sets which pages are resident, from an address on.
    pub fn present(&mut self, address: usize, pages: &mut [bool]) {
        pages.fill(false);
        let range = address..address.saturating_add(pages.len() * self.page);
        let scanned = self.scans && scan(self.pagemap.as_fd(), self.page, range, pages).is_ok();
        if !scanned {
            self.scans = false;
            // A page that the kernel does not report is not resident.
            let _ = self.look_up(address, pages);
        }
    }

    /// Whether one more request may be made.
    fn may_ask(&mut self) -> bool {
        let may_ask = self.left > 0 && self.resident.len() < RANGES_MAX;
        self.left = self.left.saturating_sub(1);
        may_ask
    }

    fn note(&mut self, range: Range<usize>) {
        match self.resident.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.resident.push(range),
        }
    }

    fn look_up(&self, address: usize, pages: &mut [bool]) -> io::Result<()> {
        let mut entries = vec![0; 8 * pages.len()];
        self.pagemap.read_exact_at(&mut entries, (address / self.page * 8) as u64)?;
        for (page, entry) in pages.iter_mut().zip(entries.as_chunks().0) {
            *page = u64::from_ne_bytes(*entry) & PRESENT != 0;
        }
        Ok(())
    }
}

impl ProcessMemory for Process {
    fn read(&mut self, address: usize, bytes: &mut [u8]) -> bool {
        self.may_ask() && self.read_at(address, bytes)
    }

    fn resident(&mut self, address: usize, pages: &mut [bool]) {
        if !self.may_ask() {
            return pages.fill(false);
        }
        self.present(address, pages);
        for (nth, _) in pages.iter().enumerate().filter(|(_, resident)| **resident) {
            let start = address.saturating_add(nth * self.page);
            self.note(start..start.saturating_add(self.page));
        }
    }
}

/// Uses PAGEMAP_SCAN (Linux 6.7), which, unlike the pagemap itself, tells pages of a process's own
/// from the kernel's one page of zeros. The kernel maps that page where memory was read and never
/// written, and does not count it as resident.
fn scan(
    pagemap: BorrowedFd,
    page: usize,
    range: Range<usize>,
    pages: &mut [bool],
) -> io::Result<()> {
    #[repr(C)]
    #[derive(Clone, Copy, Default)]
    struct Region {
        start: u64,
        end: u64,
        categories: u64,
    }
    #[repr(C)]
    struct Question {
        size: u64,
        flags: u64,
        start: u64,
        end: u64,
        walk_end: u64,
        regions: u64,
        regions_length: u64,
        max_pages: u64,
        inverted: u64,
        mask: u64,
        any_of_mask: u64,
        return_mask: u64,
    }
    const PAGEMAP_SCAN: libc::c_ulong = 0xc060_6610;
    const IS_PRESENT: u64 = 1 << 3;
    const IS_ZERO: u64 = 1 << 5;
    // At most every other page begins a new region.
    let mut regions = vec![Region::default(); pages.len()];
    let mut question = Question {
        size: size_of::<Question>() as u64,
        flags: 0,
        start: range.start as u64,
        end: range.end as u64,
        walk_end: 0,
        regions: regions.as_mut_ptr().addr() as u64,
        regions_length: regions.len() as u64,
        max_pages: 0,
        inverted: IS_ZERO,
        mask: IS_PRESENT | IS_ZERO,
        any_of_mask: 0,
        return_mask: IS_PRESENT,
    };
    // SAFETY: the kernel fills at most `regions.len()` regions, as `question` says.
    let found = unsafe { libc::ioctl(pagemap.as_raw_fd(), PAGEMAP_SCAN, &raw mut question) };
    let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
    for region in regions.get(..found).unwrap_or_default() {
        let from = (region.start as usize).saturating_sub(range.start) / page;
        let to = (region.end as usize).saturating_sub(range.start) / page;
        if let Some(pages) = pages.get_mut(from..to) {
            pages.fill(true);
        }
    }
    Ok(())
}

/// The error for a process without memory.
pub fn ended(pid: libc::pid_t) -> anyhow::Error {
    Stop::with(1, format!("process {pid} has no memory: it has ended, or is a kernel thread"))
}

/// The error for a process that may not be read, with the reason and what to do.
pub fn refused(pid: libc::pid_t, error: io::Error) -> anyhow::Error {
    let command = std::env::args().nth(1).filter(|word| word == "profile");
    let command = command.unwrap_or_else(|| "why".into());
    match error.raw_os_error() {
        Some(libc::ENOENT | libc::ESRCH) if Path::new("/proc").join(pid.to_string()).exists() => {
            ended(pid)
        }
        Some(libc::ENOENT | libc::ESRCH) => {
            Stop::usage(format!("process {pid} does not exist, or has ended"))
        }
        Some(libc::EACCES | libc::EPERM) => Stop::with(
            1,
            format!(
                "no permission to read process {pid} ({error}): ebb needs the right to debug it. \
             Run ebb as the same user, or as root (`sudo ebb {command} {pid}`; in a container with \
             CAP_SYS_PTRACE). If the sysctl kernel.yama.ptrace_scope is not 0, only root and the \
             parent process may"
            ),
        ),
        _ => Err::<(), _>(error).with_context(|| format!("cannot read process {pid}")).unwrap_err(),
    }
}
