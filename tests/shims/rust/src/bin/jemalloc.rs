//! Reads every statistic that tikv-jemalloc-ctl has.

use tikv_jemalloc_ctl::{arenas, background_thread, config, epoch, opt, stats, thread, version};

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() {
    assert!(version::read().unwrap().contains("ebbmalloc"));
    let (now, allocated) = (epoch::mib().unwrap(), stats::allocated::mib().unwrap());
    let before = allocated.read().unwrap();
    let block = vec![1u8; 10 << 20];
    assert_eq!(allocated.read().unwrap(), before);
    now.advance().unwrap();
    let grown = allocated.read().unwrap() - before;
    assert!((10 << 20..11 << 20).contains(&grown), "{grown}");
    let active = stats::active::read().unwrap();
    assert!(active >= before + block.len() && stats::resident::read().unwrap() >= active);
    assert!(stats::mapped::read().unwrap() >= active && stats::metadata::read().unwrap() > 0);
    stats::retained::read().unwrap();
    assert_eq!(arenas::narenas::read().unwrap(), 1);
    config::malloc_conf::read().unwrap();
    assert!(!opt::abort::read().unwrap() && !opt::zero::read().unwrap());
    assert!(opt::tcache::read().unwrap() && opt::narenas::read().unwrap() == 1);
    assert!(opt::tcache_max::read().unwrap() > 0 && !opt::dss::read().unwrap().is_empty());
    let may = background_thread::read().unwrap();
    background_thread::write(false).unwrap();
    assert!(!background_thread::read().unwrap());
    background_thread::write(may).unwrap();
    // Threads are not counted, and it says so.
    assert!(thread::allocatedp::read().is_err());
    println!("served by ebbmalloc 0.1.0");
}
