//! Serves the heap profile of a server: `go tool pprof http://127.0.0.1:3000/debug/pprof/heap`.
//!
//! An argument replaces the address; port 0 stands for any free one.

use std::{env, hint, io};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use ebbmalloc::{EbbMalloc, profile};
use ebbmalloc_pprof::{HeapProfile, NO_SYMBOLS};
use tokio::net::TcpListener;
use tokio::runtime::Builder;
use tokio::task::spawn_blocking;

#[global_allocator]
static GLOBAL: EbbMalloc = EbbMalloc;

fn main() -> io::Result<()> {
    // From here on, so that the profile has all that the server allocates.
    profile::start(profile::MEAN_BYTES);
    let address = env::args().nth(1).unwrap_or_else(|| "127.0.0.1:3000".into());
    let cache = fill_cache();
    Builder::new_current_thread().enable_all().build()?.block_on(serve(&address))?;
    hint::black_box(cache);
    Ok(())
}

async fn serve(address: &str) -> io::Result<()> {
    let app = Router::new()
        .route("/debug/pprof/heap", get(|| file(HeapProfile::heap)))
        .route("/debug/pprof/allocs", get(|| file(HeapProfile::allocs)))
        .route("/debug/pprof/symbol", post(|| async { NO_SYMBOLS }));
    let listener = TcpListener::bind(address).await?;
    println!("http://{}/debug/pprof/heap", listener.local_addr()?);
    axum::serve(listener, app).await
}

/// Reads the profile on a thread for what blocks: it takes milliseconds.
async fn file(kind: fn(&HeapProfile) -> Vec<u8>) -> Result<Vec<u8>, (StatusCode, &'static str)> {
    let read = spawn_blocking(move || HeapProfile::take().map(|profile| kind(&profile)));
    let file = read.await.ok().flatten();
    file.ok_or((StatusCode::SERVICE_UNAVAILABLE, "no heap profile: it was not started\n"))
}

/// Holds 64 MiB, and frees as much, so that there is something to see.
#[inline(never)]
fn fill_cache() -> Vec<Vec<u8>> {
    let blocks = (0..128 << 10).map(|nth| vec![nth as u8; 1 << 10]);
    blocks.enumerate().filter(|(nth, _)| nth % 2 == 0).map(|(_, block)| block).collect()
}
