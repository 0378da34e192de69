//! Starts the example, and reads the profiles that it serves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};
use std::{env, fs};

use ebbmalloc_pprof::internals::maps::{Head, hexadecimal};
use ebbmalloc_pprof::internals::pprof::proto;
use flate2::read::GzDecoder;
use prost::Message;

const MIB: f64 = 1048576.0;

/// The example, running.
struct Server {
    process: Child,
    address: String,
}

impl Server {
    fn start() -> Self {
        let mut process = Command::new(program())
            .arg("127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .expect("cargo test builds the example, unless tests are selected");
        let mut url = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let address = url.strip_prefix("http://").and_then(|rest| rest.split_once('/')).unwrap().0;
        Self { process, address: address.into() }
    }

    /// The content of a page.
    fn get(&self, path: &str) -> Vec<u8> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
        let head = String::from_utf8_lossy(&answer[..end]);
        assert!(head.starts_with("HTTP/1.0 200"), "{head}");
        answer.split_off(end + 4)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn program() -> PathBuf {
    env::current_exe().unwrap().parent().unwrap().with_file_name("examples").join("axum")
}

/// A profile, with its texts looked up.
struct Fetched {
    message: proto::Profile,
}

impl Fetched {
    fn new(file: &[u8]) -> Self {
        let mut bytes = Vec::new();
        GzDecoder::new(file).read_to_end(&mut bytes).unwrap();
        Self { message: proto::Profile::decode(bytes.as_slice()).unwrap() }
    }

    fn text(&self, id: i64) -> &str {
        &self.message.string_table[id as usize]
    }

    /// The sum of the values of a type.
    fn sum(&self, kind: &str) -> f64 {
        let types = &self.message.sample_type;
        let nth = types.iter().position(|of| self.text(of.r#type) == kind).unwrap();
        self.message.sample.iter().map(|sample| sample.value[nth] as f64).sum()
    }
}

#[test]
fn the_pages_have_profiles() {
    let server = Server::start();
    let heap = Fetched::new(&server.get("/debug/pprof/heap"));
    let allocs = Fetched::new(&server.get("/debug/pprof/allocs"));
    assert_eq!(heap.text(heap.message.default_sample_type), "inuse_space");
    assert_eq!(allocs.text(allocs.message.default_sample_type), "alloc_space");

    // 64 MiB are held, by 128 samples, and as many were freed: four deviations are 35 %, and of all
    // 25 %.
    for profile in [&heap, &allocs] {
        let (live, all) = (profile.sum("inuse_space") / MIB, profile.sum("alloc_space") / MIB);
        assert!((41.0..87.0).contains(&live), "{live} MiB live");
        assert!((96.0..160.0).contains(&all), "{all} MiB allocated");
        let (live, all) = (profile.sum("inuse_objects"), profile.sum("alloc_objects"));
        assert!((41e3..87e3).contains(&live), "{live} live");
        assert!((96e3..160e3).contains(&all), "{all} allocated");
    }

    let message = &heap.message;
    assert_eq!(message.period, 524288);
    let period = message.period_type.unwrap();
    assert_eq!((heap.text(period.r#type), heap.text(period.unit)), ("space", "bytes"));
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as i64;
    let minute = 60_000_000_000;
    assert!((now - minute..=now).contains(&message.time_nanos));
    assert!((0..minute).contains(&message.duration_nanos));

    // The program is mapped, with its build ID, and the stacks lie in it.
    let program = program();
    let path = program.to_str().unwrap();
    let own = message.mapping.iter().find(|mapping| heap.text(mapping.filename) == path).unwrap();
    let head = Head::of_file(&fs::File::open(path).unwrap()).unwrap();
    let build_id = head.build_id.as_deref().map(hexadecimal).unwrap_or_default();
    assert_eq!(heap.text(own.build_id), build_id);
    let largest = message.sample.iter().max_by_key(|sample| sample.value[3]).unwrap();
    assert!(!largest.location_id.is_empty());
    let own_locations = largest.location_id.iter().filter(|&&id| {
        let location = message.location.iter().find(|location| location.id == id).unwrap();
        location.mapping_id == own.id
            && (own.memory_start..own.memory_limit).contains(&location.address)
            && location.line.is_empty()
    });
    assert!(own_locations.count() > 3, "main, fill_cache and what allocates for it");
}

/// Go's tool fetches the page, and names the functions by the program's file.
#[test]
fn go_fetches_them() {
    if Command::new("go").args(["tool", "pprof", "-h"]).output().is_err() {
        eprintln!("SKIPPED: go is not installed");
        return;
    }
    let server = Server::start();
    let folder = env::temp_dir().join(format!("ebbmalloc-pprof-{}", std::process::id()));
    let pprof = |arguments: &[&str], page: &str| {
        let mut command = Command::new("go");
        command.args(["tool", "pprof"]).args(arguments);
        command.arg(format!("http://{}/debug/pprof/{page}", server.address));
        let output = command.env("PPROF_TMPDIR", &folder).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    };
    let raw = pprof(&["-raw"], "heap");
    let types = "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]";
    for part in ["PeriodType: space bytes", "Period: 524288", types] {
        assert!(raw.contains(part), "{part}: {raw}");
    }
    let raw = pprof(&["-raw"], "allocs");
    assert!(raw.contains("alloc_space/bytes[dflt]"), "{raw}");
    let top = pprof(&["-top", "-cum"], "heap");
    let _ = fs::remove_dir_all(&folder);
    assert!(top.contains("fill_cache"), "{top}");
}
