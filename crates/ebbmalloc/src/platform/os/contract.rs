//! Tests what every platform keeps of the contract in the same way.

use super::interface::{OsProcess, OsReports};
use super::native::Native;

#[test]
fn environment_is_read_and_cut() {
    let mut buffer = [0; 2];
    assert_eq!(Native.environment("EBB_SURELY_NOT_SET", &mut buffer), None);
    assert_eq!(Native.environment("PATH", &mut buffer), Some(2));
}

#[test]
fn files_are_replaced() {
    let path = std::env::temp_dir().join(std::format!("ebb-{}.txt", Native.process_id()));
    let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    for text in [b"one", b"two"] {
        assert!(Native.write_file(&name, &mut |out| out(text)));
        assert_eq!(std::fs::read(&path).unwrap(), text);
    }
    std::fs::remove_file(path).unwrap();
    assert!(!Native.write_file(c"no such folder/file", &mut |_| {}));
}
