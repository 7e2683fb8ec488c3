//! The kernel's own killer, in a memory control group that a test makes full: it takes whom it is told to take first.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use leasehold::cli::demo::procs::Process;

use super::{need, until};

static NEXT: AtomicU32 = AtomicU32::new(0);

/// Where the memory controller is: a hierarchy of its own (cgroup v1), or the unified one.
const V1: &str = "/sys/fs/cgroup/memory";
const V2: &str = "/sys/fs/cgroup";

/// A control group with little memory, removed when it is dropped.
struct Group {
    path: PathBuf,
    limit: &'static str,
    events: &'static str,
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.path);
    }
}

pub fn needs() -> [need::Need; 2] {
    let controllers = fs::read_to_string(Path::new(V2).join("cgroup.controllers")).unwrap_or_default();
    let unified = controllers.split_ascii_whitespace().any(|c| c == "memory").then_some(V2);
    [need::root(), need::file(unified.unwrap_or(V1))]
}

impl Group {
    fn new() -> Group {
        let name = format!("leasehold-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let group = if Path::new(V1).exists() {
            Group { path: Path::new(V1).join(name), limit: "memory.limit_in_bytes", events: "memory.oom_control" }
        } else {
            fs::write(Path::new(V2).join("cgroup.subtree_control"), "+memory").expect("the controller can be enabled");
            Group { path: Path::new(V2).join(name), limit: "memory.max", events: "memory.events" }
        };
        fs::create_dir(&group.path).expect("root can make a control group");
        group.set(group.limit, "16777216").expect("a limit can be set");
        group
    }

    fn set(&self, file: &str, value: &str) -> io::Result<()> {
        fs::write(self.path.join(file), value)
    }

    fn take_in(&self, pid: u32) {
        self.set("cgroup.procs", &pid.to_string()).expect("a process can be moved");
    }

    fn killed(&self) -> usize {
        let text = fs::read_to_string(self.path.join(self.events)).expect("the group is there");
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).expect("a count")
    }
}

/// Takes more memory than the group has, until it is itself the last to be killed.
fn eater(group: &Group) -> Child {
    let eat = "echo $$ >\"$0/cgroup.procs\" && exec tail /dev/zero";
    let mut eater = Command::new("sh");
    eater.args(["-c", eat]).arg(&group.path).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    eater.spawn().expect("sh runs")
}

/// Has the kernel kill these, because memory has run out.
pub fn strike(victims: &[Process]) {
    let group = Group::new();
    for victim in victims {
        let pid = victim.pid.as_raw_nonzero().get().unsigned_abs();
        // As packaged, both are the last to be killed. Here they are the first.
        fs::write(format!("/proc/{pid}/oom_score_adj"), "1000").expect("root may");
        group.take_in(pid);
    }
    let mut eater = eater(&group);
    eater.wait().expect("it is killed in its turn");
    assert!(group.killed() > victims.len(), "the kernel has killed {} only", group.killed());
    until("nobody is left in the group", || {
        fs::read_to_string(group.path.join("cgroup.procs")).is_ok_and(|t| t.is_empty())
    });
}
