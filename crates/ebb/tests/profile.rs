//! Tests `ebb profile` from the outside: formats, symbols, real processes, and what goes wrong.

mod common;

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{ebb, executable, holder, library};
use predicates::prelude::PredicateBooleanExt;
use predicates::str::contains;

const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/profile");

fn server() -> PathBuf {
    Path::new(FILES).join("server.heap")
}

/// Compares text with a file; EBB_BLESS=1 writes the file.
fn assert_golden(name: &str, text: &str) {
    let path = Path::new(FILES).join(name);
    if std::env::var_os("EBB_BLESS").is_some() {
        fs::write(&path, text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(text, expected, "{name}: EBB_BLESS=1 writes it anew");
}

fn table(arguments: &[&str], file: &Path) -> String {
    let output = ebb().arg("profile").args(arguments).arg(file).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Writes the profile in `file` to a new file with this name.
fn written(folder: &Path, name: &str, arguments: &[&str], file: &Path) -> String {
    let path = folder.join(name);
    let wrote = contains(format!("wrote {}", path.display()));
    ebb()
        .args(["profile", "-o"])
        .arg(&path)
        .args(arguments)
        .arg(file)
        .assert()
        .success()
        .stdout("")
        .stderr(wrote);
    String::from_utf8_lossy(&fs::read(path).unwrap()).into_owned()
}

/// The data within a page.
fn page_data(page: &str) -> serde_json::Value {
    let (_, rest) = page.split_once("type=\"application/json\">").unwrap();
    serde_json::from_str(rest.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn each_format() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    assert_golden("server.table", &table(&[], &server()));
    assert_golden("server.allocated.table", &table(&["--allocated"], &server()));
    assert_golden("server.objects.table", &table(&["--objects"], &server()));
    let folded = written(folder, "a.folded", &[], &server());
    assert_golden("server.folded", &folded);
    let page = written(folder, "a.html", &[], &server());
    let data = serde_json::to_string_pretty(&page_data(&page)).unwrap();
    assert_golden("server.page.json", &(data + "\n"));
    let svg = written(folder, "a.svg", &[], &server());
    assert!(svg.contains("<svg") && svg.contains("<title>server+0xa000 ("), "{svg}");
    // The pprof file holds the same: reading it gives the same stacks.
    written(folder, "a.pb.gz", &[], &server());
    let again = written(folder, "b.folded", &[], &folder.join("a.pb.gz"));
    assert_eq!(folded, again);
    ebb().args(["profile", "-o", "x.json", "1"]).assert().code(2).stderr(contains(".folded"));
}

#[test]
fn differences() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let text = fs::read_to_string(server()).unwrap();
    let earlier = folder.join("earlier.heap");
    let smaller = text.replace("     4: 25165824 [", "     1:  6291456 [");
    assert_ne!(text, smaller);
    fs::write(&earlier, smaller.replace("1700000000000", "1699999940000")).unwrap();
    let earlier = earlier.to_str().unwrap();
    let diff = ["--diff", earlier];
    assert_golden("server.diff.table", &table(&diff, &server()));
    assert_golden("server.diff.folded", &written(folder, "a.folded", &diff, &server()));
    let page = page_data(&written(folder, "a.html", &diff, &server()));
    assert_eq!(page["difference"], true);
    assert_eq!(page["stacks"][0][1].as_array().unwrap().len(), 8);
    assert!(written(folder, "a.svg", &diff, &server()).contains("; +"));
    // A pprof file is as good as the text it came from.
    written(folder, "old.pb.gz", &[], Path::new(earlier));
    let old = folder.join("old.pb.gz");
    let again = ["--diff", old.to_str().unwrap()];
    let again = written(folder, "b.folded", &again, &server());
    assert_golden("server.diff.folded", &again);
}

/// Go's own reader accepts the file, with the types and the names that it shows.
#[test]
fn go_reads_it() {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("SKIPPED: go is not installed");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), "a.pb.gz", &[], &server());
    let pprof = |arguments: &[&str]| {
        let mut command = Command::new("go");
        command.args(["tool", "pprof"]).args(arguments).arg(folder.path().join("a.pb.gz"));
        let output = command.env("PPROF_TMPDIR", folder.path()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{error}");
        String::from_utf8(output.stdout).unwrap()
    };
    let raw = pprof(&["-raw"]);
    for part in [
        "PeriodType: space bytes",
        "Period: 524288",
        "alloc_objects/count alloc_space/bytes inuse_objects/count inuse_space/bytes[dflt]",
        "server 0123456789abcdef0123456789abcdef01234567",
        "Time: 2023-11-14",
        "Duration: 1m30",
    ] {
        assert!(raw.contains(part), "{part}: {raw}");
    }
    let top = pprof(&["-top", "-sample_index=inuse_space"]);
    assert!(top.contains("server+0x2234"), "{top}");
}

/// A program whose file is there, stripped, or replaced.
#[test]
fn symbols_of_stripped_programs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let source = folder.join("made.c");
    fs::write(
        &source,
        "static inline __attribute__((always_inline)) int inner(int x) { return x * 7 + 1; }\n\
         __attribute__((noinline)) int outer(int x) { return inner(x) ^ 3; }\n\
         int main(int argc, char **argv) { return outer(argc); }\n",
    )
    .unwrap();
    let run = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let program = folder.join("made");
    let mut compiler = Command::new("cc");
    run(compiler
        .args(["-g", "-O1", "-no-pie", "-Wl,--build-id=0xabcdef0123456789", "-o"])
        .args([&program, &source]));
    let symbols = run(Command::new("nm").arg(&program));
    let address = |name: &str| {
        let line = symbols.lines().find(|line| line.ends_with(&format!(" {name}"))).unwrap();
        u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap()
    };
    let (outer, main) = (address("outer"), address("main"));
    let heap = folder.join("made.heap");
    // The code is mapped as it was linked, after the first page.
    fs::write(
        &heap,
        format!(
            "heap profile: 1: 600000 [1: 600000] @ heap_v2/524288\n\
             # build_id: abcdef0123456789 {path}\n\
             1: 600000 [1: 600000] @ {:#x} {:#x}\n\nMAPPED_LIBRARIES:\n\
             00401000-00402000 r-xp 00001000 fe:00 1 {path}\n",
            outer + 2,
            main + 2,
            path = program.display()
        ),
    )
    .unwrap();
    let folded = |arguments: &[&str]| written(folder, "x.folded", arguments, &heap);
    assert!(folded(&[]).starts_with("main;outer;inner "), "{}", folded(&[]));

    // Stripped, with its symbols elsewhere.
    let debug = folder.join("symbols/.build-id/ab/cdef0123456789.debug");
    fs::create_dir_all(debug.parent().unwrap()).unwrap();
    run(Command::new("objcopy").arg("--only-keep-debug").args([&program, &debug]));
    run(Command::new("strip").arg(&program));
    let stripped = written(folder, "x.folded", &[], &heap);
    assert!(stripped.starts_with("made+0x"), "{stripped}");
    let remark = contains("has no symbols").and(contains("build ID abcdef0123456789"));
    ebb().arg("profile").arg(&heap).assert().success().stdout(remark.and(contains("--symbols")));
    let symbols = folder.join("symbols");
    let with = ["--symbols", symbols.to_str().unwrap()];
    assert!(folded(&with).starts_with("main;outer;inner "), "{}", folded(&with));

    // Another build has the same path now: its functions would be wrong.
    fs::write(&source, "int main(void) { return 0; }\n").unwrap();
    let mut compiler = Command::new("cc");
    run(compiler.args(["-g", "-no-pie", "-Wl,--build-id=0x99", "-o"]).args([&program, &source]));
    let replaced = folded(&[]);
    assert!(replaced.starts_with("made+0x"), "{replaced}");
    assert!(folded(&with).starts_with("main;outer;inner "), "{}", folded(&with));
    ebb().arg("profile").arg(&heap).assert().success().stdout(contains("replaced or deleted"));
}

#[test]
fn files_that_are_no_profiles() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).unwrap();
        path
    };
    for (path, words) in [
        (file("text", b"hello\n"), "is no heap profile"),
        (file("empty", b""), "is no heap profile"),
        (file("cut.pb.gz", b"\x1f\x8b\x08\x00"), "it is not whole"),
        (file("cut.heap", b"heap profile: 1: 2 [3: 4] @ heap_v2/512\n1: 2 [3"), "line 2"),
    ] {
        ebb().arg("profile").arg(&path).assert().code(1).stderr(contains(words));
        ebb().args(["profile", "1", "--diff"]).arg(&path).assert().code(1).stderr(contains(words));
    }
    ebb().args(["profile", "/no/such/file"]).assert().code(2).stderr(contains("no such file"));
    ebb()
        .args(["profile", "--seconds", "1"])
        .arg(server())
        .assert()
        .code(2)
        .stderr(contains("--seconds is for processes"));
    ebb()
        .args(["profile", "--symbols", "/no/such/folder"])
        .arg(server())
        .assert()
        .code(2)
        .stderr(contains("no such folder"));
}

#[test]
fn a_full_disk_is_told() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["full.html", "full.pb.gz", "full.svg", "full.folded"] {
        let full = folder.path().join(name);
        std::os::unix::fs::symlink("/dev/full", &full).unwrap();
        ebb()
            .args(["profile", "-o"])
            .arg(&full)
            .arg(server())
            .assert()
            .code(1)
            .stderr(contains("cannot write").and(contains("No space left on device")));
    }
    let output = fs::File::options().write(true).open("/dev/full").unwrap();
    let mut command = Command::new(executable());
    let ended = command.arg("profile").arg(server()).stdout(output).output().unwrap();
    assert_eq!(ended.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&ended.stderr).contains("cannot write to standard output"));
}

/// A process that ends with its handle.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn on_ebbmalloc(arguments: &[&str]) -> Self {
        let mut command = Command::new(executable());
        command.args(["run", "--library"]).arg(library()).arg("--").arg(holder()).args(arguments);
        for name in ["EBB_MODE", "EBB_STATS", "EBB_PROFILE", "LD_PRELOAD"] {
            command.env_remove(name);
        }
        let running = Self::start(&mut command);
        // The library is set up at its first allocation.
        let is_set_up = || {
            let output = ebb().args(["why", &running.pid()]).output();
            output.is_ok_and(|output| output.status.success())
        };
        for _ in 0..500 {
            if is_set_up() {
                return running;
            }
            thread::sleep(Duration::from_millis(20));
        }
        panic!("`ebb why` finds no ebbmalloc in {}", running.pid());
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn processes_that_cannot_be_profiled() {
    ebb().args(["profile", "999999999"]).assert().code(2).stderr(contains("does not exist"));
    let plain = Running::start(Command::new("sleep").arg("60"));
    ebb()
        .args(["profile", &plain.pid()])
        .assert()
        .code(1)
        .stderr(contains("has no ebbmalloc").and(contains("ebb profile -- PROGRAM")));
    ebb().args(["profile", "--", "no-such-program"]).assert().code(127);
    // SAFETY: returns a number and touches no memory.
    if unsafe { libc::geteuid() } == 0 {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let copy = folder.path().join("ebb");
        common::install(executable(), &copy, 0o755);
        let mut command = Command::new(copy);
        let output =
            command.args(["profile", &plain.pid()]).uid(65534).gid(65534).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("sudo ebb profile"), "{error}");
    }
}

#[test]
fn processes_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("unusual-long-name-of-a-sleeper");
    common::install(Path::new("/bin/sleep"), &program, 0o755);
    let name = program.file_name().unwrap().to_str().unwrap();
    for command in ["why", "profile"] {
        ebb()
            .args([command, name])
            .assert()
            .code(2)
            .stderr(contains(format!("no process is named {name}")));
    }
    let one = Running::start(Command::new(&program).arg("60"));
    ebb().args(["why", name]).assert().code(1).stdout(contains(format!("(pid {})", one.pid())));
    let other = Running::start(Command::new(&program).arg("61"));
    for command in ["why", "profile"] {
        let told = contains("2 processes are named")
            .and(contains(one.pid()))
            .and(contains(other.pid()))
            .and(contains("sleeper 61"))
            .and(contains(format!("`ebb {command} ")));
        ebb().args([command, name]).assert().code(2).stderr(told);
    }
}

fn folded(arguments: &[&str]) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.folded");
    let mut command = ebb();
    command.args(["profile", "-o"]).arg(&file).args(arguments);
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    fs::read_to_string(file).unwrap()
}

/// Bytes of the stacks through a function.
fn bytes_of(folded: &str, function: &str) -> f64 {
    let lines = folded.lines().filter(|line| line.contains(function));
    lines.map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap()).sum()
}

const MIB: f64 = 1048576.0;

/// A running process is profiled without preparation: of two functions that allocate the same, only
/// the one that keeps its blocks holds memory.
#[test]
fn who_holds_the_memory_of_a_running_process() {
    let running = Running::on_ebbmalloc(&["grow", "60"]);
    let pid = running.pid();
    let live = folded(&["--seconds", "3", "--mean", "64K", &pid]);
    let kept = bytes_of(&live, "keep_one");
    assert!(kept > 0.0 && bytes_of(&live, "use_one") <= kept / 8.0, "{live}");
    assert!(bytes_of(&live, "holder::main") + bytes_of(&live, "grow") >= kept, "{live}");
    assert!(!live.contains("malloc") && !live.contains("__rust_alloc"), "{live}");

    // It was switched off. Left on, the next look needs no wait, and sees all since.
    let first = folded(&["--seconds", "1", "--mean", "64K", "--keep", &pid]);
    thread::sleep(Duration::from_secs(2));
    let all = ["--allocated", pid.as_str()];
    let second = folded(&all);
    assert!(bytes_of(&second, "use_one") > bytes_of(&first, "use_one"), "{first}{second}");
    let table = ebb().args(["profile", "--off", &pid]).output().unwrap();
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("keep_one (holder.rs:") && table.contains("resident:"), "{table}");
}

#[test]
fn what_grew_again_and_again() {
    let running = Running::on_ebbmalloc(&["grow", "60"]);
    let mut command = Command::new(executable());
    command.args(["profile", "--every", "1s", "--mean", "64K", &running.pid()]);
    let child = command.stdout(Stdio::piped()).spawn().unwrap();
    thread::sleep(Duration::from_secs(5));
    // SAFETY: a system call that touches no memory; the child is not reaped yet.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{text}");
    assert!(text.contains("growth") && text.contains("+") && text.contains("keep_one"), "{text}");
}

#[test]
fn a_program_at_its_peak_and_at_its_end() {
    let holder = holder();
    let holder = holder.to_str().unwrap();
    // Of 40 MiB in blocks of 512 bytes, 0.4 MiB are left in the end.
    let peak = folded(&["--", holder, "free-after-a-second", "40"]);
    let taken = bytes_of(&peak, "take");
    assert!((taken - 40.0 * MIB).abs() < MIB, "{peak}");
    let end = folded(&["--at-end", "--", holder, "free-after-a-second", "40"]);
    assert!(bytes_of(&end, "take") < 20.0 * MIB, "{end}");
    ebb()
        .args(["profile", "--", "sh", "-c", "exit 7"])
        .assert()
        .success()
        .stderr(contains("ended with exit status: 7"));
}

/// A process that ends while it is profiled leaves what was seen before.
#[test]
fn a_process_that_ends_meanwhile() {
    let running = Running::on_ebbmalloc(&["grow", "5"]);
    let pid = running.pid();
    ebb()
        .args(["profile", "--seconds", "60", "--mean", "64K", &pid])
        .assert()
        .success()
        .stdout(contains("keep_one"))
        .stderr(contains(format!("process {pid} has ended")));
}

/// A process that does nothing has nothing to show.
#[test]
fn an_idle_process() {
    let running = Running::on_ebbmalloc(&["pinned", "2"]);
    thread::sleep(Duration::from_secs(1));
    ebb()
        .args(["profile", "--seconds", "1", &running.pid()])
        .assert()
        .success()
        .stdout(contains("allocated nothing while it was profiled"));
}

/// The page's ledger and its stacks add up to resident memory.
#[test]
fn the_ledger_adds_up() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("out.html");
    let mut command = ebb();
    command.args(["profile", "--at-end", "-o"]).arg(&file).arg("--").arg(holder());
    command.args(["pinned", "40"]).assert().success();
    let data = page_data(&fs::read_to_string(file).unwrap());
    let parts = data["ledger"]["parts"].as_array().unwrap();
    let sum: f64 = parts.iter().map(|part| part[2].as_f64().unwrap()).sum();
    let resident = data["ledger"]["resident"].as_f64().unwrap();
    assert!((sum - resident).abs() <= 0.03 * resident, "{sum} of {resident}");
}

/// Each command ends without a word when its output is closed, at once or after a byte; also one
/// that has nothing to print, as the process that it looks at is idle.
#[test]
fn closed_outputs() {
    let running = Running::on_ebbmalloc(&["pinned", "2"]);
    let pid = running.pid();
    let file = server();
    let file = file.to_str().unwrap();
    let commands: [&[&str]; 17] = [
        &["why", "--json", &pid],
        &["why", &pid],
        &["why", "--json", "--watch=0.05", &pid],
        &["why", "--watch=0.05", &pid],
        &["why", "--", "true"],
        &["profile", file],
        &["profile", "--diff", file, file],
        &["profile", "--seconds", "0.05", &pid],
        &["profile", "--every", "0.1", &pid],
        &["profile", "--", "true"],
        &["compare", "-n", "1", "--warmup", "0", "--json", "--", "true"],
        &["compare", "-n", "1", "--warmup", "0", "--", "true"],
        &["run", "--", "yes"],
        &["set", &pid, "purge_delay=1s"],
        &["--help"],
        &["why", "--help"],
        &["--version"],
    ];
    for (arguments, bytes) in commands.into_iter().flat_map(|each| [(each, 0), (each, 1)]) {
        let prints_nothing = arguments.contains(&"--every") || arguments[0] == "set";
        if prints_nothing && bytes > 0 {
            continue;
        }
        let mut command = Command::new(executable());
        command.args(arguments).env("EBB_LIBRARY", library());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let _ = child.stdout.take().unwrap().take(bytes).read_to_end(&mut Vec::new());
        let mut errors = String::new();
        child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
        let status = child.wait().unwrap();
        let progress = ["ebb: round", "ebb: run", "ebb: profiling"];
        let is_progress = |line: &&str| progress.iter().any(|start| line.starts_with(start));
        let remarks: Vec<_> = errors.lines().filter(|line| !is_progress(line)).collect();
        assert!(!errors.contains("panicked"), "{arguments:?}: {errors}");
        // `yes` itself is what SIGPIPE ends.
        let is_quiet = status.code().is_some_and(|code| [0, 1, 141].contains(&code))
            || status.signal() == Some(libc::SIGPIPE);
        assert!(is_quiet, "{arguments:?}: {status}");
        assert!(remarks.len() <= 1, "{arguments:?}: {errors}");
        assert!(!errors.contains("roken pipe"), "{arguments:?}: {errors}");
    }
}

/// On a terminal, watching leaves what was there before.
#[test]
fn watching_uses_the_alternate_screen() {
    let running = Running::on_ebbmalloc(&["pinned", "2"]);
    let watch = format!(
        "stty rows 24 cols 80; exec {} why --watch=0.1 {}",
        executable().display(),
        running.pid()
    );
    let mut command = Command::new("timeout");
    command.args(["-s", "INT", "-k", "10", "2", "script", "-qefc", &watch, "/dev/null"]);
    let output = command.env("TERM", "xterm").stdin(Stdio::null()).output();
    let Ok(output) = output else {
        eprintln!("SKIPPED: `script` is not installed");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(text.contains("\x1b[?1049h"), "{text}");
    let drawn = text.split("\x1b[?1049h").nth(1).unwrap();
    let drawn = drawn.split("\x1b[?1049l").next().unwrap();
    assert!(drawn.contains("Ctrl-C ends") && !drawn.contains('\n'), "{drawn:?}");
    // Each line begins with a move of the cursor to its row, and keeps to the 80 columns.
    let lines: Vec<_> = drawn.split("\x1b[").filter_map(|part| part.split_once(";1H")).collect();
    assert!(lines.len() > 10, "{drawn:?}");
    for (row, line) in lines {
        assert!(row.parse::<usize>().unwrap() <= 24 && line.chars().count() <= 80, "{row}: {line}");
    }
}
