//! Lists the nodes of `mallctl`. What ebbmalloc does not know, or does not have, has no node.

use core::ffi::{CStr, c_int, c_uint};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use shim::figures;

use crate::arenas;
use crate::control::Call;

/// A name with `*` for numbers, and what it does.
pub struct Node {
    name: &'static str,
    act: fn(&Call) -> c_int,
}

/// The most parts of a name.
const PARTS: usize = 4;

/// Stands for all arenas, in place of the number of one.
const ALL_ARENAS: usize = 4096;
/// The largest number of bytes in a block that caches hold.
const CACHED_BYTES_MAX: usize = 64 << 10;
const CACHED_BYTES_MAX_LOG: usize = CACHED_BYTES_MAX.ilog2() as usize;

const VERSION: &CStr = match CStr::from_bytes_with_nul(
    concat!("5.3.0-ebbmalloc-", env!("CARGO_PKG_VERSION"), "\0").as_bytes(),
) {
    Ok(version) => version,
    Err(_) => panic!("a zero byte in the version"),
};

macro_rules! nodes {
    ($($name:literal => $act:expr;)+) => {
        static NODES: &[Node] = &[$(Node { name: $name, act: $act }),+];
    };
}

nodes! {
    "version" => |call| call.read(VERSION.as_ptr());
    "epoch" => epoch;
    "background_thread" => background_thread;
    "max_background_threads" => |call| call.read(1_usize);

    "config.cache_oblivious" => |call| call.read(false);
    "config.debug" => |call| call.read(false);
    "config.fill" => |call| call.read(false);
    "config.lazy_lock" => |call| call.read(false);
    "config.malloc_conf" => |call| call.read(c"".as_ptr());
    "config.prof" => |call| call.read(false);
    "config.prof_libgcc" => |call| call.read(false);
    "config.prof_libunwind" => |call| call.read(false);
    "config.stats" => |call| call.read(true);
    "config.utrace" => |call| call.read(false);
    "config.xmalloc" => |call| call.read(false);

    "opt.abort" => |call| call.read(false);
    "opt.abort_conf" => |call| call.read(false);
    "opt.background_thread" => |call| scavenges(|may| call.read(may));
    "opt.dss" => |call| call.read(c"disabled".as_ptr());
    "opt.junk" => |call| call.read(c"false".as_ptr());
    "opt.lg_tcache_max" => |call| call.read(CACHED_BYTES_MAX_LOG);
    "opt.narenas" => |call| call.read(1 as c_uint);
    "opt.retain" => |call| call.read(true);
    "opt.tcache" => |call| call.read(true);
    "opt.tcache_max" => |call| call.read(CACHED_BYTES_MAX);
    "opt.utrace" => |call| call.read(false);
    "opt.xmalloc" => |call| call.read(false);
    "opt.zero" => |call| call.read(false);

    "thread.arena" => |call| match call.taken::<c_uint>() {
        Ok(None | Some(0)) => call.give(0 as c_uint),
        Ok(Some(_)) => libc::EFAULT,
        Err(error) => error,
    };
    "thread.idle" => flush_cache;
    "thread.tcache.enabled" => |call| match call.taken::<bool>() {
        Ok(None | Some(true)) => call.give(true),
        Ok(Some(false)) => libc::EPERM,
        Err(error) => error,
    };
    "thread.tcache.flush" => flush_cache;

    "tcache.create" => |call| {
        // A number to pass on, which changes nothing.
        static CREATED: AtomicU32 = AtomicU32::new(0);
        create(call, || Some(CREATED.fetch_add(1, Ordering::Relaxed)))
    };
    "tcache.flush" => explicit_cache;
    "tcache.destroy" => explicit_cache;

    // The program cannot give functions that map its memory.
    "arenas.create" => |call| create(call, || arenas::create().map(|arena| arena as c_uint));
    "arenas.narenas" => |call| call.read(arenas::count() as c_uint);
    "arenas.quantum" => |call| call.read(shim::MIN_ALIGN);
    "arenas.page" => |call| call.read(page_size());
    "arenas.tcache_max" => |call| call.read(CACHED_BYTES_MAX);
    "arenas.nbins" => |call| call.read(classes());
    "arenas.nhbins" => |call| call.read(classes());
    "arenas.bin.*.size" => |call| class(call, |bytes, _| call.read(bytes));
    "arenas.bin.*.slab_size" => |call| class(call, |_, span_bytes| call.read(span_bytes));
    "arenas.bin.*.nregs" => |call| class(call, |bytes, span_bytes| {
        call.read((span_bytes / bytes) as u32)
    });

    "arena.*.initialized" => |call| arena(call, || call.read(true));
    "arena.*.purge" => |call| arena(call, || call.run(|| {
        // SAFETY: it has no precondition.
        unsafe { shim::ebb_malloc_trim(0) };
        0
    }));
    "arena.*.decay" => |call| arena(call, || call.run(|| {
        // SAFETY: it has no precondition.
        unsafe { shim::ebb_idle() };
        0
    }));
    "arena.*.reset" => |call| call.run(|| arenas::delete(call.numbers[0], true));
    "arena.*.destroy" => |call| call.run(|| arenas::delete(call.numbers[0], false));

    "stats.allocated" => |call| call.read(figure(allocated));
    "stats.active" => |call| call.read(figure(active));
    "stats.metadata" => |call| call.read(figure(metadata));
    "stats.resident" => |call| call.read(figure(resident));
    "stats.mapped" => |call| call.read(figure(mapped));
    "stats.retained" => |call| call.read(figure(retained));
    "stats.arenas.*.mapped" => |call| whole(call, || call.read(figure(mapped)));
    "stats.arenas.*.retained" => |call| whole(call, || call.read(figure(retained)));
    "stats.arenas.*.resident" => |call| whole(call, || call.read(figure(resident)));
    "stats.arenas.*.pactive" => |call| whole(call, || call.read(figure(active) / page_size()));
    "stats.arenas.*.pdirty" => |call| whole(call, || call.read(figure(dirty) / page_size()));
    "stats.arenas.*.small.allocated" => |call| whole(call, || call.read(figure(small)));
    "stats.arenas.*.large.allocated" => |call| whole(call, || call.read(figure(large)));
}

impl Node {
    pub fn call(&self, call: &Call) -> c_int {
        (self.act)(call)
    }
}

/// The node of this name, and the numbers in it.
pub fn find(name: &[u8]) -> Option<(&'static Node, [usize; 2])> {
    NODES.iter().find_map(|node| Some((node, matching(node, name)?)))
}

/// The numbers in a name, if it is that of the node.
fn matching(node: &Node, name: &[u8]) -> Option<[usize; 2]> {
    let (mut numbers, mut count) = ([0; 2], 0);
    let mut parts = name.split(|&byte| byte == b'.');
    for wanted in node.name.split('.') {
        let part = parts.next()?;
        if wanted == "*" {
            numbers[count] = core::str::from_utf8(part).ok()?.parse().ok()?;
            count += 1;
        } else if wanted.as_bytes() != part {
            return None;
        }
    }
    parts.next().is_none().then_some(numbers)
}

/// The numbers by which [`of_mib`] finds the node of a name, and how many they are: as many as the
/// name has parts, those in the name at their places. The first selects the node.
pub fn mib(name: &[u8]) -> Option<([usize; PARTS], usize)> {
    let (node, numbers) = find(name)?;
    let place = NODES.iter().position(|other| other.name == node.name)?;
    let (mut mib, mut count, mut numbers) = ([0; PARTS], 0, numbers.into_iter());
    for (to, part) in mib.iter_mut().zip(node.name.split('.')) {
        *to = if part == "*" { numbers.next()? } else { 0 };
        count += 1;
    }
    mib[0] = place;
    Some((mib, count))
}

/// The node that [`mib`] found, and the numbers that the program may have changed since.
pub fn of_mib(mib: &[usize]) -> Option<(&'static Node, [usize; 2])> {
    let node = NODES.get(*mib.first()?)?;
    if node.name.split('.').count() != mib.len() {
        return None;
    }
    let mut numbers = [0; 2];
    let given = node.name.split('.').zip(mib).filter(|(part, _)| *part == "*");
    numbers.iter_mut().zip(given).for_each(|(to, (_, &number))| *to = number);
    Some((node, numbers))
}

/// Copies the statistics, of which others read numbers.
fn epoch(call: &Call) -> c_int {
    static EPOCH: AtomicU64 = AtomicU64::new(1);
    match call.taken::<u64>() {
        Err(error) => return error,
        Ok(None) => {}
        Ok(Some(_)) => {
            if !copy_figures() {
                return libc::EAGAIN;
            }
            EPOCH.fetch_add(1, Ordering::Relaxed);
        }
    }
    call.give(EPOCH.load(Ordering::Relaxed))
}

/// Whether statistics were copied yet.
static HAS_FIGURES: AtomicBool = AtomicBool::new(false);

fn copy_figures() -> bool {
    let copied = figures::refresh();
    HAS_FIGURES.fetch_or(copied, Ordering::Relaxed);
    copied
}

/// A number of the last copy; of a first one, if there is none.
fn figure(of: fn() -> u64) -> usize {
    if !HAS_FIGURES.load(Ordering::Relaxed) {
        copy_figures();
    }
    of() as usize
}

fn allocated() -> u64 {
    figures::value("live_bytes")
}

fn large() -> u64 {
    figures::value("large_bytes")
}

fn small() -> u64 {
    allocated().saturating_sub(large())
}

/// Blocks, and free ones beside them in spans: what moves of blocks can reduce. Free blocks in
/// caches are none of these.
fn active() -> u64 {
    allocated() + figures::value("pinned_bytes")
}

fn cached() -> u64 {
    figures::value("cached_bytes")
}

fn dirty() -> u64 {
    figures::value("dirty_bytes")
}

fn metadata() -> u64 {
    figures::value("table_bytes") + figures::value("slab_bytes")
}

fn resident() -> u64 {
    active() + cached() + dirty() + metadata()
}

/// Addresses in use, or free and resident.
fn mapped() -> u64 {
    let unused = figures::value("hole_bytes") + figures::value("end_bytes");
    active() + cached() + unused + dirty()
}

/// Addresses that are kept, but hold nothing.
fn retained() -> u64 {
    (figures::value("committed_bytes") + figures::value("sampled_bytes")).saturating_sub(mapped())
}

/// Tells whether a scavenger may run, where that is known.
fn scavenges(then: impl FnOnce(bool) -> c_int) -> c_int {
    shim::scavenges().map_or(libc::ENOENT, then)
}

fn background_thread(call: &Call) -> c_int {
    let new = match call.taken::<bool>() {
        Ok(new) => new,
        Err(error) => return error,
    };
    scavenges(|before| match new {
        Some(new) if new != before && !set_scavenger(new) => libc::EPERM,
        _ => call.give(before),
    })
}

fn set_scavenger(on: bool) -> bool {
    let value = if on { c"auto" } else { c"0" };
    // SAFETY: both are C strings.
    unsafe { shim::ebb_ctl(c"scavenger".as_ptr(), value.as_ptr()) == 0 }
}

fn flush_cache(call: &Call) -> c_int {
    call.run(|| if shim::flush_cache() { 0 } else { libc::EPERM })
}

/// Creates what has a number, and returns that. Creates nothing if the program cannot get it.
fn create(call: &Call, work: impl FnOnce() -> Option<c_uint>) -> c_int {
    if call.gives() {
        return libc::EPERM;
    }
    if !call.has_room_for::<c_uint>() {
        return libc::EINVAL;
    }
    match work() {
        Some(number) => call.give(number),
        None => libc::EAGAIN,
    }
}

/// Takes the number of a thread cache that the program created, and does nothing.
fn explicit_cache(call: &Call) -> c_int {
    match call.taken::<c_uint>() {
        Ok(None) => libc::EINVAL,
        Ok(Some(_)) => 0,
        Err(error) => error,
    }
}

/// Runs `work` if the first number in the name is that of an arena, or means all: so does the
/// number of arenas.
fn arena(call: &Call, work: impl FnOnce() -> c_int) -> c_int {
    let arena = call.numbers[0];
    if !arenas::heap(arena).is_null() { work() } else { whole(call, work) }
}

/// As `arena`, for what is known of the whole process only: arena 0 stands for it.
fn whole(call: &Call, work: impl FnOnce() -> c_int) -> c_int {
    let arena = call.numbers[0];
    let is_whole = arena == 0 || arena == ALL_ARENAS || arena == arenas::count();
    if is_whole { work() } else { libc::ENOENT }
}

/// Passes block size and bytes in a span of the class with the number in the name.
fn class(call: &Call, then: impl FnOnce(usize, usize) -> c_int) -> c_int {
    match shim::class(call.numbers[0]) {
        Some((bytes, span_bytes)) => then(bytes, span_bytes),
        None => libc::ENOENT,
    }
}

/// Number of size classes.
fn classes() -> c_uint {
    (0..).take_while(|&nth| shim::class(nth).is_some()).count() as c_uint
}

fn page_size() -> usize {
    // SAFETY: a call of the C library.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}
