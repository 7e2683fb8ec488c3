//! From the moment that resources may be up the guard takes no memory: where there is none left, it works all the same.
//!
//! A program of its own, since it counts what every thread of it allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::process::Command;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::time::Duration;

use leasehold::core::{Span, Token};
use leasehold::guard::{self, GuardOptions, plan};
use leasehold::os::bell::Bell;
use leasehold::os::net::cut::{Cutter, Spec};
use leasehold::os::shared::{Content, Fired, Said, Shared, Standing, Told};
use leasehold::os::{clock, machine};
use leasehold::resource::{Remains, ServerRemains, UnitRemains};

/// The system's allocator, with a count of what the watched threads ask of it.
struct Counting;

static WATCHED: [AtomicI32; 2] = [AtomicI32::new(0), AtomicI32::new(0)];
static ASKED: AtomicU64 = AtomicU64::new(0);

fn count() {
    let watched = || {
        let me = rustix::thread::gettid().as_raw_nonzero().get();
        WATCHED.iter().any(|tid| tid.load(Ordering::SeqCst) == me)
    };
    if WATCHED[0].load(Ordering::SeqCst) != 0 && watched() {
        ASKED.fetch_add(1, Ordering::SeqCst);
    }
}

// SAFETY: everything is handed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count();
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The kernel's number of the thread of this name.
fn thread_named(name: &str) -> i32 {
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut tasks = tasks.map(|task| task.path());
    let is_it = |path: &std::path::PathBuf| fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim() == name);
    let path = tasks.find(is_it).unwrap_or_else(|| panic!("no thread {name}"));
    path.file_name().unwrap().to_str().unwrap().parse().unwrap()
}

fn said(page: &Shared) -> Option<Said> {
    match page.said() {
        Content::Told(said) => Some(said),
        Content::Never | Content::Unreadable => None,
    }
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = clock::now();
    while !holds() {
        assert!(clock::now().since(begun) < Span::from_secs(60), "not within a minute: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_whole_lease_is_watched_and_enforced_to_the_reset_without_one_allocation() {
    let directory = tempfile::tempdir().unwrap();
    let page = Shared::open(directory.path(), machine::boot_id().unwrap()).unwrap();
    let bell = Bell::open(directory.path()).unwrap();
    let mark = format!("LEASEHOLD_RESOURCE=heap:{}", directory.path().display());
    let remains = Remains {
        marks: vec![mark.clone()],
        cgroups: vec!["/sys/fs/cgroup/no-such-group".into()],
        servers: vec![ServerRemains { program: "postgres".into(), directory: "/srv/no-such-data".into() }],
        units: vec![UnitRemains {
            unit: "no-such-unit.service".into(),
            trees: vec!["/sys/fs/cgroup".into()],
            manager: "/nonexistent/private".into(),
            stop: vec![0; 64],
        }],
        // Whether the kernel lets it is no matter: what counts is that it is asked.
        clients: Some(Spec {
            table: format!("leasehold-heap-{}", std::process::id()),
            addresses: vec!["192.0.2.77".parse().unwrap()],
            ports: vec![1],
            peers: Vec::new(),
        }),
        addresses: vec!["192.0.2.77".parse().unwrap(), "2001:db8::77".parse().unwrap()],
        hidden: vec!["share".into()],
    };
    let plan = plan::save(directory.path(), &remains, None, &[]).unwrap();
    let options = GuardOptions {
        runtime: directory.path().into(),
        boot_id: None,
        on_reset: Some(directory.path().join("reset")),
    };
    let guard = std::thread::Builder::new().name("watch".into());
    guard.spawn(move || guard::run(&options).unwrap()).unwrap();

    let mut told = Told {
        standing: Standing::Idle,
        deadline: clock::now(),
        token: Token(42),
        right: Span::from_secs(60),
        kill_after: Span::ZERO,
        reset_after: Span::from_ms(1500),
        beat_within: Span::ZERO,
        plan,
        daemon: 0,
    };
    page.tell(&told);
    bell.ring();
    until("the guard holds the plan", || said(&page).is_some_and(|said| said.plan == plan));

    let (name, value) = mark.split_once('=').unwrap();
    let mut service = Command::new("sleep").arg("600").env(name, value).spawn().unwrap();
    for (watched, name) in WATCHED.iter().zip(["watch", "hand"]).rev() {
        watched.store(thread_named(name), Ordering::SeqCst);
    }
    told.standing = Standing::Armed;
    for _ in 0..20 {
        told.deadline = clock::now().after(Span::from_ms(300));
        page.tell(&told);
        bell.ring();
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(!service.wait().unwrap().success(), "the guard has killed it");
    until("a reset was ordered", || said(&page).is_some_and(|said| said.fired == Fired::Reset));
    assert_eq!(ASKED.load(Ordering::SeqCst), 0, "allocations of the guard's threads");
    let _ = Cutter::attach(remains.clients.unwrap()).remove();
    // The count itself works: this thread is watched now.
    WATCHED[0].store(rustix::thread::gettid().as_raw_nonzero().get(), Ordering::SeqCst);
    drop(std::hint::black_box(vec![0u8; 100]));
    assert!(ASKED.load(Ordering::SeqCst) > 0);
}
