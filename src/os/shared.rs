//! One page of memory that the daemon and the guard share: the lease, and what the guard says of itself.
//!
//! Each side writes one area and reads the other; no call of the kernel is needed for either. An area is a sequence lock
//! with a sum: the writer makes the number odd, writes, sums up, makes it even. A reader that meets an odd number, a
//! number that changed under it or a wrong sum has read nothing. A writer that was killed in the middle leaves its area
//! unreadable until it is written again; whoever reads keeps what it knew before (protocol section 7: a lease is never
//! made longer by what cannot be read).
//!
//! ```text
//! word   0       1         2        3 …             sum
//!      | magic | version | number | body         | sum |      daemon's area
//!  40  | beat: the boot clock when the daemon's loop last went round |
//!  64  | magic | version | number | body         | sum |      guard's area
//! ```
//!
//! Words are 64 bits in the order of the machine: nobody else reads them, and the page does not outlive a boot.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};

use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use sha2::{Digest as _, Sha256};

use super::stall::Stalls;
use crate::core::{BootId, Instant, Span, Token};

/// The name of the file in the run-time directory.
pub const FILE: &str = "guard";
const VERSION: u64 = 1;
const WORDS: usize = 512;
const SIZE: usize = WORDS * 8;
const DAEMON_AT: usize = 0;
const DAEMON_MAGIC: u64 = u64::from_le_bytes(*b"LEASEDMN");
const BEAT_AT: usize = 40;
const GUARD_AT: usize = 64;
const GUARD_MAGIC: u64 = u64::from_le_bytes(*b"LEASEGRD");
/// Words before the body.
const HEAD: usize = 3;
/// A write takes less than a microsecond: a number that stays odd for this many looks belongs to a writer that is gone,
/// or that was stopped in the middle.
const LOOKS: usize = 1000;

/// What was found in an area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<T> {
    /// Nobody has written here in this boot.
    Never,
    /// Cut off in the middle, of another version, or damaged.
    Unreadable,
    Told(T),
}

/// Whether resources may be up here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Nothing runs here, verified by the daemon.
    Idle,
    /// Resources may be up, until the deadline.
    Armed,
    /// The daemon stops them in good order; the deadline moves no more.
    Stopping,
}

/// What the daemon tells the guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Told {
    pub standing: Standing,
    /// The end of the right to act.
    pub deadline: Instant,
    pub token: Token,
    /// T − M: no deadline lies further ahead than this.
    pub right: Span,
    /// S: how long after the deadline a daemon that lives may go on stopping in good order.
    pub kill_after: Span,
    /// M − 2ρT − R: how long after the deadline the node is reset if the stop is not verified.
    pub reset_after: Span,
    /// A daemon whose last beat is older than this is not taken for alive.
    pub beat_within: Span,
    /// The id of the emergency plan; zero: none yet.
    pub plan: u64,
    pub daemon: u32,
}

/// How far the guard has gone since the deadline passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fired {
    No,
    Cut,
    Killing,
    /// Nothing is left, seen by the guard itself.
    Proven,
    Reset,
}

/// The hardware watchdog as the guard has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DogState {
    NotAsked,
    /// With the time that was read back from the device.
    Armed(Span),
    Refused,
}

/// What the guard says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    pub guard: u32,
    /// When it last looked at the deadline.
    pub alive_at: Instant,
    /// The plan that it holds in memory.
    pub plan: u64,
    pub dog: DogState,
    pub fired: Fired,
    /// The lease at whose end it fired last.
    pub fired_token: Token,
    pub fired_deadline: Instant,
    /// How late its timer woke it, since it started.
    pub late: Stalls,
    /// The same, of the last hour.
    pub late_hour: Stalls,
}

/// The mapped page.
#[derive(Debug)]
pub struct Shared {
    page: Page,
    boot: BootId,
}

impl Shared {
    /// Opens the page in the run-time directory, or makes it. What another boot wrote counts as never written.
    ///
    /// # Errors
    /// The directory is missing, or the file cannot be made or mapped.
    pub fn open(directory: &Path, boot: BootId) -> io::Result<Shared> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(directory.join(FILE))?;
        if file.metadata()?.len() < SIZE as u64 {
            file.set_len(SIZE as u64)?;
        }
        Ok(Shared { page: Page::map(&file)?, boot })
    }

    /// The daemon's side. One thread at a time.
    pub fn tell(&self, told: &Told) {
        write(&self.page.words()[DAEMON_AT..BEAT_AT], DAEMON_MAGIC, told.words(self.boot));
    }

    pub fn told(&self) -> Content<Told> {
        let read = read(&self.page.words()[DAEMON_AT..BEAT_AT], DAEMON_MAGIC);
        self.of_this_boot(read, Told::of)
    }

    /// The daemon's loop went round.
    pub fn beat(&self, now: Instant) {
        self.page.words()[BEAT_AT].store(now.0, Ordering::Relaxed);
    }

    pub fn beat_at(&self) -> Instant {
        Instant(self.page.words()[BEAT_AT].load(Ordering::Relaxed))
    }

    /// The guard's side. One thread at a time.
    pub fn say(&self, said: &Said) {
        write(&self.page.words()[GUARD_AT..], GUARD_MAGIC, said.words(self.boot));
    }

    pub fn said(&self) -> Content<Said> {
        let read = read(&self.page.words()[GUARD_AT..], GUARD_MAGIC);
        self.of_this_boot(read, Said::of)
    }

    /// The first two words of a body are the boot.
    fn of_this_boot<T, const N: usize>(
        &self,
        read: Content<[u64; N]>,
        understand: fn(&[u64; N]) -> Option<T>,
    ) -> Content<T> {
        match read {
            Content::Told(body) if body[..2] != boot_words(self.boot) => Content::Never,
            Content::Told(body) => understand(&body).map_or(Content::Unreadable, Content::Told),
            Content::Never => Content::Never,
            Content::Unreadable => Content::Unreadable,
        }
    }
}

impl Told {
    fn words(&self, boot: BootId) -> [u64; 11] {
        let standing = match self.standing {
            Standing::Idle => 0,
            Standing::Armed => 1,
            Standing::Stopping => 2,
        };
        let [high, low] = boot_words(boot);
        let times = [self.right.0, self.kill_after.0, self.reset_after.0, self.beat_within.0];
        let [right, kill, reset, beat] = times;
        let daemon = u64::from(self.daemon);
        [high, low, standing, self.deadline.0, self.token.0, right, kill, reset, beat, self.plan, daemon]
    }

    fn of(words: &[u64; 11]) -> Option<Told> {
        let [_, _, standing, deadline, token, right, kill, reset, beat, plan, daemon] = *words;
        let standing = match standing {
            0 => Standing::Idle,
            1 => Standing::Armed,
            2 => Standing::Stopping,
            _ => return None,
        };
        Some(Told {
            standing,
            deadline: Instant(deadline),
            token: Token(token),
            right: Span(right),
            kill_after: Span(kill),
            reset_after: Span(reset),
            beat_within: Span(beat),
            plan,
            daemon: u32::try_from(daemon).ok()?,
        })
    }
}

impl Said {
    fn words(&self, boot: BootId) -> [u64; 18] {
        let [high, low] = boot_words(boot);
        let (dog, timeout) = match self.dog {
            DogState::NotAsked => (0, 0),
            DogState::Armed(timeout) => (1, timeout.0),
            DogState::Refused => (2, 0),
        };
        let fired = match self.fired {
            Fired::No => 0,
            Fired::Cut => 1,
            Fired::Killing => 2,
            Fired::Proven => 3,
            Fired::Reset => 4,
        };
        let [wakes, p50, p99_9, longest] = late_words(&self.late);
        let [wakes_h, p50_h, p99_9_h, longest_h] = late_words(&self.late_hour);
        let (token, deadline) = (self.fired_token.0, self.fired_deadline.0);
        let guard = u64::from(self.guard);
        let (alive, plan) = (self.alive_at.0, self.plan);
        [
            high, low, guard, alive, plan, dog, timeout, fired, token, deadline, wakes, p50, p99_9, longest, wakes_h,
            p50_h, p99_9_h, longest_h,
        ]
    }

    fn of(words: &[u64; 18]) -> Option<Said> {
        let [_, _, guard, alive, plan, dog, timeout, fired, token, deadline, late @ ..] = *words;
        let dog = match dog {
            0 => DogState::NotAsked,
            1 => DogState::Armed(Span(timeout)),
            2 => DogState::Refused,
            _ => return None,
        };
        let fired = match fired {
            0 => Fired::No,
            1 => Fired::Cut,
            2 => Fired::Killing,
            3 => Fired::Proven,
            4 => Fired::Reset,
            _ => return None,
        };
        Some(Said {
            guard: u32::try_from(guard).ok()?,
            alive_at: Instant(alive),
            plan,
            dog,
            fired,
            fired_token: Token(token),
            fired_deadline: Instant(deadline),
            late: late_of([late[0], late[1], late[2], late[3]]),
            late_hour: late_of([late[4], late[5], late[6], late[7]]),
        })
    }
}

fn late_words(late: &Stalls) -> [u64; 4] {
    [late.count, late.p50.0, late.p99_9.0, late.longest.0]
}

fn late_of([count, p50, p99_9, longest]: [u64; 4]) -> Stalls {
    Stalls { count, p50: Span(p50), p99_9: Span(p99_9), longest: Span(longest) }
}

fn boot_words(boot: BootId) -> [u64; 2] {
    let half = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| boot.0[at + i]));
    [half(0), half(8)]
}

/// The area of one writer.
fn write<const N: usize>(area: &[AtomicU64], magic: u64, body: [u64; N]) {
    let number = area[2].load(Ordering::Relaxed).wrapping_add(2) & !1;
    area[2].store(number.wrapping_sub(1), Ordering::Relaxed);
    // Nobody may see a new word beside an old, even number.
    fence(Ordering::Release);
    area[0].store(magic, Ordering::Relaxed);
    area[1].store(version::<N>(), Ordering::Relaxed);
    for (word, value) in area[HEAD..].iter().zip(body) {
        word.store(value, Ordering::Relaxed);
    }
    area[HEAD + N].store(sum(magic, number, &body), Ordering::Relaxed);
    area[2].store(number, Ordering::Release);
}

fn read<const N: usize>(area: &[AtomicU64], magic: u64) -> Content<[u64; N]> {
    for _ in 0..LOOKS {
        let number = area[2].load(Ordering::Acquire);
        let found: [u64; N] = std::array::from_fn(|i| area[HEAD + i].load(Ordering::Relaxed));
        let (m, v, s) = (&area[0], &area[1], &area[HEAD + N]);
        let [m, v, s] = [m, v, s].map(|word| word.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        if number & 1 == 1 || area[2].load(Ordering::Relaxed) != number {
            std::hint::spin_loop();
            continue;
        }
        let untouched = number == 0 && m == 0 && v == 0 && s == 0 && found.iter().all(|word| *word == 0);
        let whole = m == magic && v == version::<N>() && s == sum(magic, number, &found);
        return match (untouched, whole) {
            (true, _) => Content::Never,
            (false, true) => Content::Told(found),
            (false, false) => Content::Unreadable,
        };
    }
    Content::Unreadable
}

/// A body of another length is of another version.
fn version<const N: usize>() -> u64 {
    VERSION << 32 | N as u64
}

fn sum(magic: u64, number: u64, body: &[u64]) -> u64 {
    let mut hash = Sha256::new();
    [magic, number].iter().chain(body).for_each(|word| hash.update(word.to_le_bytes()));
    let digest = hash.finalize();
    u64::from_le_bytes(std::array::from_fn(|i| digest[i]))
}

/// Mapped for as long as this lives.
#[derive(Debug)]
struct Page(NonNull<AtomicU64>);

// SAFETY: the page is only ever used as atomic words, which any thread may use at any time.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    fn map(file: &File) -> io::Result<Page> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses overlaps nothing.
        let base = unsafe { mmap(std::ptr::null_mut(), SIZE, protection, MapFlags::SHARED, file, 0) }?;
        NonNull::new(base.cast()).map(Page).ok_or_else(|| io::Error::other("mapped at address zero"))
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: the mapping is SIZE bytes, aligned to a page, lives as long as `self`, and is used by both processes
        // as atomic words alone. The file is never made shorter: only root, or the user of both, may write it.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), WORDS) }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this size, and no reference outlives `self`.
        let _ = unsafe { munmap(self.0.as_ptr().cast(), SIZE) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: BootId = BootId([7; 16]);

    fn told(deadline: u64) -> Told {
        Told {
            standing: Standing::Armed,
            deadline: Instant(deadline),
            token: Token(42),
            right: Span(3),
            kill_after: Span(4),
            reset_after: Span(5),
            beat_within: Span(6),
            plan: deadline ^ 0xffff,
            daemon: 8,
        }
    }

    fn said() -> Said {
        Said {
            guard: 1,
            alive_at: Instant(2),
            plan: 3,
            dog: DogState::Armed(Span(4)),
            fired: Fired::Proven,
            fired_token: Token(5),
            fired_deadline: Instant(6),
            late: Stalls { count: 7, p50: Span(8), p99_9: Span(9), longest: Span(10) },
            late_hour: Stalls { count: 11, p50: Span(12), p99_9: Span(13), longest: Span(14) },
        }
    }

    fn bytes(directory: &Path) -> Vec<u8> {
        std::fs::read(directory.join(FILE)).unwrap()
    }

    #[test]
    fn the_layout_is_the_one_that_a_guard_of_an_older_package_reads() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::open(dir.path(), BOOT).unwrap();
        shared.tell(&told(77));
        shared.beat(Instant(99));
        shared.say(&said());
        let bytes = bytes(dir.path());
        let word = |at: usize| u64::from_ne_bytes(bytes[at * 8..at * 8 + 8].try_into().unwrap());
        assert_eq!(bytes.len(), 4096);
        assert_eq!(&bytes[..8], b"LEASEDMN");
        assert_eq!((word(1), word(2)), (1 << 32 | 11, 2));
        assert_eq!((3..14).map(word).skip(2).collect::<Vec<_>>(), [1, 77, 42, 3, 4, 5, 6, 77 ^ 0xffff, 8]);
        assert_eq!(word(40), 99);
        assert_eq!(&bytes[512..520], b"LEASEGRD");
        assert_eq!((word(65), word(66)), (1 << 32 | 18, 2));
        assert_eq!((69..85).map(word).collect::<Vec<_>>(), [1, 2, 3, 1, 4, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
    }

    #[test]
    fn what_one_side_writes_the_other_reads_and_a_fresh_page_was_never_written() {
        let dir = tempfile::tempdir().unwrap();
        let (daemon, guard) = (Shared::open(dir.path(), BOOT).unwrap(), Shared::open(dir.path(), BOOT).unwrap());
        assert_eq!((guard.told(), daemon.said()), (Content::Never, Content::Never));
        for standing in [Standing::Idle, Standing::Armed, Standing::Stopping] {
            daemon.tell(&Told { standing, ..told(5) });
            assert_eq!(guard.told(), Content::Told(Told { standing, ..told(5) }));
        }
        for fired in [Fired::No, Fired::Cut, Fired::Killing, Fired::Proven, Fired::Reset] {
            guard.say(&Said { fired, dog: DogState::Refused, ..said() });
            assert_eq!(daemon.said(), Content::Told(Said { fired, dog: DogState::Refused, ..said() }));
        }
        daemon.beat(Instant(9));
        assert_eq!(guard.beat_at(), Instant(9));
    }

    #[test]
    fn a_page_of_another_boot_was_never_written() {
        let dir = tempfile::tempdir().unwrap();
        Shared::open(dir.path(), BOOT).unwrap().tell(&told(5));
        assert_eq!(Shared::open(dir.path(), BootId([8; 16])).unwrap().told(), Content::Never);
    }

    #[test]
    fn a_writer_that_was_killed_in_the_middle_and_any_flipped_bit_leave_nothing_to_read() {
        let dir = tempfile::tempdir().unwrap();
        let shared = Shared::open(dir.path(), BOOT).unwrap();
        shared.tell(&told(5));
        let words = shared.page.words();
        words[2].fetch_add(1, Ordering::SeqCst);
        assert_eq!(shared.told(), Content::Unreadable);
        shared.tell(&told(6));
        assert_eq!(shared.told(), Content::Told(told(6)), "and the next writer mends it");
        for bit in 0..HEAD as u64 * 64 + 12 * 64 {
            let (word, mask) = (&words[bit as usize / 64], 1 << (bit % 64));
            word.fetch_xor(mask, Ordering::SeqCst);
            assert_eq!(shared.told(), Content::Unreadable, "bit {bit}");
            word.fetch_xor(mask, Ordering::SeqCst);
        }
        assert_eq!(shared.told(), Content::Told(told(6)));
    }

    #[test]
    fn a_reader_beside_a_writer_never_sees_half_of_a_write() {
        let dir = tempfile::tempdir().unwrap();
        let writer = Shared::open(dir.path(), BOOT).unwrap();
        let reader = Shared::open(dir.path(), BOOT).unwrap();
        writer.tell(&told(1));
        let read = std::thread::spawn(move || {
            let (mut last, mut seen) = (0, 0u32);
            while last < 50_000 {
                if let Content::Told(now) = reader.told() {
                    assert_eq!(now, told(now.deadline.0), "words of two writes");
                    assert!(now.deadline.0 >= last, "an older write after a newer one");
                    seen += u32::from(now.deadline.0 != last);
                    last = now.deadline.0;
                }
            }
            seen
        });
        (1..=50_000).for_each(|n| writer.tell(&told(n)));
        assert!(read.join().unwrap() > 0);
    }
}
