//! A state directory on a disk that can be made to stall: FUSE, through `disk.py`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::need::{self, Need};

/// Mounted over a folder that exists; what is in it stays. Dropping it lets everybody go.
pub struct Disk {
    child: Child,
    point: PathBuf,
    hang: PathBuf,
}

pub fn needs() -> [Need; 3] {
    let module = "/usr/lib/python3/dist-packages/fusepy.py";
    [need::root(), need::file("/dev/fuse"), need::file(module)]
}

impl Disk {
    pub fn mount(point: &Path) -> Disk {
        let (back, hang) = (point.with_extension("disk"), point.with_extension("hang"));
        fs::rename(point, &back).expect("the folder can be moved");
        fs::create_dir(point).expect("and made again");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/load/disk.py");
        let mut command = Command::new("/usr/bin/python3");
        command.arg(script).args([&back, point, &hang]).stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.spawn().expect("python3 runs");
        // A file that only shows through it says that it is mounted.
        let (mark, seen) = (back.join("mark"), point.join("mark"));
        fs::write(&mark, "").expect("the folder can be written");
        crate::until("the file system is mounted", || seen.exists());
        fs::remove_file(&mark).expect("it was made above");
        Disk { child, point: point.to_owned(), hang }
    }

    pub fn stall(&self, stalls: bool) {
        match stalls {
            true => fs::write(&self.hang, "").expect("the folder can be written"),
            false => drop(fs::remove_file(&self.hang)),
        }
    }

    /// Whether anybody has waited for a sync.
    pub fn was_felt(&self) -> bool {
        self.hang.with_extension("hang.felt").exists()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.stall(false);
        let _ = Command::new("umount").arg("--lazy").arg(&self.point).status();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
