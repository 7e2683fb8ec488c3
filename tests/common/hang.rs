//! A file system that stops answering, so that whoever uses it hangs in the kernel: FUSE, through `hang.py`.

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::need::{self, Need};

/// It is mounted within a second; a loaded machine takes longer.
const LOOKS: u32 = 3000;

/// Mounted; answers at first. Dropping it lets everybody go.
pub struct Hanging {
    dir: tempfile::TempDir,
    child: Child,
}

pub fn needs() -> [Need; 4] {
    [
        need::root(),
        need::file("/dev/fuse"),
        need::file("/usr/lib/python3/dist-packages/fusepy.py"),
        need::program("umount"),
    ]
}

impl Hanging {
    pub fn mount() -> Hanging {
        let dir = tempfile::tempdir().unwrap();
        let (point, hang) = (dir.path().join("mount"), dir.path().join("hang"));
        fs::create_dir(&point).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/hang.py");
        let mut command = Command::new("/usr/bin/python3");
        command.arg(script).args([&point, &hang]).stdout(Stdio::null()).stderr(Stdio::null());
        let hanging = Hanging { child: command.spawn().unwrap(), dir };
        for _ in 0..LOOKS {
            if hanging.path("agent").exists() {
                return hanging;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the file system is not mounted");
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join("mount").join(name)
    }

    /// From now on nothing is answered.
    pub fn hang(&self) {
        fs::write(self.dir.path().join("hang"), "").unwrap();
    }

    pub fn let_go(&self) {
        let _ = fs::remove_file(self.dir.path().join("hang"));
    }
}

impl Drop for Hanging {
    fn drop(&mut self) {
        self.let_go();
        let _ = Command::new("umount").arg("-l").arg(self.dir.path().join("mount")).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
