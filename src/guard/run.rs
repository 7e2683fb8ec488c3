//! The watching thread: looks at the deadline first, whatever woke it, and calls nothing that may block.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, openat};

use super::farewell::Farewells;
use super::hand::Hand;
use super::judge::{NEXT_LOOK, Seen, Verdict, judge};
use super::line::Line;
use super::plan::{self, LARGEST, Plan};
use super::{GuardError, GuardOptions};
use crate::core::{Instant, Span, Token};
use crate::os::bell::Bell;
use crate::os::reset::LastResort;
use crate::os::shared::{Content, DogState, Fired, Said, Shared, Standing, Told};
use crate::os::sleeper::Sleeper;
use crate::os::stall::StallMeter;
use crate::os::watchdog::{self, Watchdog};
use crate::os::{clock, machine};

/// How long the guard sleeps at most: its life sign, and the bound for a bell that was not heard.
const TICK: Span = Span::from_secs(1);
/// The watchdog is fed at least this often within its time.
const FEEDS: u64 = 4;
/// How long `reboot(2)` has before the magic key follows: it needs milliseconds unless a driver hangs.
const REBOOT_LIMIT: Span = Span::from_ms(250);
/// A daemon that writes is done in microseconds, if it is not kept from it in the middle. A page that cannot be read for
/// longer, beside no lease that is known, counts as one whose lease has ended.
const UNREADABLE_PATIENCE: Span = Span::from_secs(1);
/// Then this much time is left until the reset: the next daemon writes the page anew as soon as it starts.
const UNREADABLE_RESET: Span = Span::from_secs(5);

macro_rules! say {
    ($($text:tt)*) => { Line::of(format_args!($($text)*)).say() };
}

/// Runs until it is told to end.
///
/// # Errors
/// What it needs is not there. It then has done nothing.
pub fn run(options: &GuardOptions) -> Result<(), GuardError> {
    let directory = &options.runtime;
    let made = std::fs::create_dir_all(directory);
    made.map_err(|source| GuardError::Directory { path: directory.clone(), source })?;
    let _lock = take_lock(directory)?;
    let start = |step| move |source| GuardError::Start { step, source };
    let boot = options.boot_id.as_deref().map_or_else(machine::boot_id, machine::boot_id_given)?;
    // Before any thread: each would take the signals otherwise.
    let bell = Bell::open(directory).map_err(start("open the bell"))?;
    let sleeper = Sleeper::new(bell).map_err(start("make the timer"))?;
    let shared = Shared::open(directory, boot).map_err(start("share memory with the daemon"))?;
    let last_resort = match &options.on_reset {
        None => LastResort::prepare(),
        Some(path) => LastResort::written_to(path),
    };
    let last_resort = last_resort.map_err(start("prepare a reset"))?;
    let hand = Hand::start().map_err(start("start the acting thread"))?;
    let path = CString::new(directory.join(plan::FILE).as_os_str().as_bytes())
        .map_err(|error| GuardError::Start { step: "name the plan", source: error.into() })?;
    if let Err(error) = machine::lock_memory() {
        say!("warning: memory is not locked ({error}): the guard may wait for the swap device");
    }
    say!("watching {}; to reset: {}", directory.display(), last_resort.described());
    Watch::new(shared, hand, last_resort, path).run(sleeper);
    Ok(())
}

/// The kernel's lock: it ends with the process, however that ends.
fn take_lock(directory: &Path) -> Result<File, GuardError> {
    let path = directory.join("guard.lock");
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600);
    let file = options.open(&path).map_err(|source| GuardError::Start { step: "open the guard's lock", source })?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(std::fs::TryLockError::WouldBlock) => Err(GuardError::Another { path: directory.to_owned() }),
        Err(std::fs::TryLockError::Error(source)) => Err(GuardError::Start { step: "lock the guard's lock", source }),
    }
}

#[derive(Debug)]
enum Dog {
    NotAsked,
    Armed(Watchdog),
    Refused,
}

/// How far a reset has come. There is no way back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reset {
    No,
    Rebooting { since: Instant },
    KeyPressed,
}

#[derive(Debug)]
struct Watch {
    shared: Shared,
    hand: Hand,
    farewells: Farewells,
    last_resort: LastResort,
    plan_path: CString,
    /// Where a plan is read before it is believed.
    space: Box<[u8; LARGEST]>,
    /// Since when the page cannot be read.
    unreadable: Option<Instant>,
    /// What was read last and whole; never made later by what cannot be read.
    known: Option<Told>,
    /// The passed deadline, and when that was found.
    episode: Option<(Instant, Instant)>,
    plan: u64,
    dog: Dog,
    reset: Reset,
    fired: Fired,
    fired_token: Token,
    fired_deadline: Instant,
    meter: StallMeter,
}

impl Watch {
    fn new(shared: Shared, hand: Hand, last_resort: LastResort, plan_path: CString) -> Watch {
        Watch {
            shared,
            hand,
            farewells: Farewells::none(),
            last_resort,
            plan_path,
            space: Box::new([0; LARGEST]),
            unreadable: None,
            known: None,
            episode: None,
            plan: 0,
            dog: Dog::NotAsked,
            reset: Reset::No,
            fired: Fired::No,
            fired_token: Token::NONE,
            fired_deadline: Instant(0),
            meter: StallMeter::new(),
        }
    }

    fn run(mut self, mut sleeper: Sleeper) {
        loop {
            let look = self.look();
            let woken = sleeper.wait(look);
            if woken.due {
                self.meter.note(look, clock::now());
            }
            if woken.told_to_end && self.may_end() {
                return self.end();
            }
        }
    }

    /// The comparison with the deadline comes before anything else. Gives when to look again.
    fn look(&mut self) -> Instant {
        self.learn();
        let now = clock::now();
        let look = match self.reset {
            Reset::No => self.heed(now),
            Reset::Rebooting { since } => self.go_on_resetting(since, now),
            Reset::KeyPressed => now.after(TICK),
        };
        self.prepare();
        self.tell(now);
        // Until all that the plan needs is made, and told.
        if self.hand.is_ready() { look } else { look.min(now.after(NEXT_LOOK)) }
    }

    fn learn(&mut self) {
        let told = self.shared.told();
        let now = clock::now();
        match told {
            Content::Told(told) if is_sane(&told, now) => (self.known, self.unreadable) = (Some(told), None),
            Content::Told(_) | Content::Unreadable => self.cannot_read(now),
            // A page that was emptied says no more than one that is damaged.
            Content::Never if self.known.is_some() => self.cannot_read(now),
            Content::Never => {}
        }
        if let Some(known) = &self.known {
            self.hand.spare(known.daemon);
        }
    }

    /// A lease that is known stays as it is. A guard that knows of none waits a moment, then takes it for ended.
    fn cannot_read(&mut self, now: Instant) {
        let since = *self.unreadable.get_or_insert(now);
        let knows_a_lease = self.known.is_some_and(|told| told.standing != Standing::Idle);
        if !knows_a_lease && now.since(since) >= UNREADABLE_PATIENCE {
            self.known = Some(worst(since));
        }
    }

    fn heed(&mut self, now: Instant) -> Instant {
        let Some(told) = self.known else { return self.keep_quiet(now.after(self.tick())) };
        let since = self.episode.filter(|(deadline, _)| *deadline == told.deadline).map_or(now, |(_, since)| since);
        let nothing_left = self.hand.saw_nothing_left(told.deadline);
        let since = if self.came_back(&told, nothing_left) { now } else { since };
        let seen = Seen { since, nothing_left };
        let verdict = judge(&told, self.shared.beat_at(), seen, now, self.tick());
        match verdict {
            Verdict::Quiet { look } => return self.keep_quiet(look),
            Verdict::Cut { .. } | Verdict::Kill { .. } | Verdict::Reset => {
                self.episode = Some((told.deadline, since));
            }
        }
        match verdict {
            Verdict::Quiet { look } => look,
            Verdict::Cut { look } => self.cut(&told, now, look),
            Verdict::Kill { look } => self.kill(&told, seen, now, look),
            Verdict::Reset => self.begin_reset(&told, now),
        }
    }

    /// Something is there again after nothing was: it gets the same moment as what was found first.
    fn came_back(&mut self, told: &Told, nothing_left: bool) -> bool {
        let was_gone = self.fired == Fired::Proven && self.fired_deadline == told.deadline;
        was_gone && !nothing_left && self.comes_to(Fired::Killing, told)
    }

    fn keep_quiet(&mut self, look: Instant) -> Instant {
        if self.episode.take().is_some() {
            self.hand.rest();
            say!("nothing runs here any more, or the lease goes on: watching");
        }
        self.feed();
        look
    }

    fn cut(&mut self, told: &Told, now: Instant, look: Instant) -> Instant {
        if self.comes_to(Fired::Cut, told) {
            self.hand.cut(told.deadline);
            say!("{}: its clients are refused; the daemon stops the rest", Ran(told, now));
        }
        look
    }

    fn kill(&mut self, told: &Told, seen: Seen, now: Instant, look: Instant) -> Instant {
        if seen.nothing_left {
            if self.comes_to(Fired::Proven, told) {
                say!("{}: nothing is left here, seen", Ran(told, now));
            }
            self.feed();
        } else if self.comes_to(Fired::Killing, told) {
            say!("{}: killing everything that it started", Ran(told, now));
        }
        // From the first order on the hand is at work, and may hold on to the plan for long.
        if self.plan == 0 {
            self.prepare();
        }
        self.hand.kill(told.deadline);
        look
    }

    fn begin_reset(&mut self, told: &Told, now: Instant) -> Instant {
        self.comes_to(Fired::Reset, told);
        self.reset = Reset::Rebooting { since: now };
        let line = Line::of(format_args!(
            "leasehold-guard: resetting: {}, and it is not seen to have stopped\n",
            Ran(told, now)
        ));
        // Neither waits for anybody, and after the next step there may be no time left.
        self.farewells.send();
        line.say();
        self.last_resort.reboot(line.as_bytes());
        now.after(REBOOT_LIMIT)
    }

    /// From here on the watchdog is not fed: it is the last step, if there is one.
    fn go_on_resetting(&mut self, since: Instant, now: Instant) -> Instant {
        if now < since.after(REBOOT_LIMIT) {
            return since.after(REBOOT_LIMIT);
        }
        self.reset = Reset::KeyPressed;
        self.last_resort.press_magic_key();
        say!("neither reboot(2) nor the magic key has reset this node; its watchdog is no longer fed");
        now.after(TICK)
    }

    /// Whether this step of this deadline is new.
    fn comes_to(&mut self, step: Fired, told: &Told) -> bool {
        let same = self.fired == step && self.fired_deadline == told.deadline;
        (self.fired, self.fired_token, self.fired_deadline) = (step, told.token, told.deadline);
        !same
    }

    /// Reads a new plan ahead of need, and arms the watchdog that it asks for.
    fn prepare(&mut self) {
        let wanted = match &self.known {
            Some(told) if told.plan != 0 => Some(told.plan),
            // The page could not be read: any whole plan is better than none.
            Some(told) if told.standing == Standing::Armed && self.plan == 0 => None,
            Some(_) | None => return,
        };
        if wanted == Some(self.plan) {
            return;
        }
        let Some(mut plan) = self.hand.plan() else { return };
        if load(&mut plan, &self.plan_path, wanted, &mut self.space) {
            self.plan = plan.id();
            self.farewells.take(&plan);
            say!("holds plan {:016x}", self.plan);
            arm(&mut self.dog, &plan);
            drop(plan);
            self.hand.renew();
        }
    }

    fn tick(&self) -> Span {
        match &self.dog {
            Dog::Armed(dog) => Span(dog.real().0 / FEEDS).min(TICK),
            Dog::NotAsked | Dog::Refused => TICK,
        }
    }

    fn feed(&mut self) {
        if let Dog::Armed(dog) = &mut self.dog
            && let Err(error) = dog.feed()
        {
            say!("the watchdog cannot be fed ({error}): this node is about to be reset by it");
        }
    }

    fn tell(&self, now: Instant) {
        let dog = match &self.dog {
            Dog::NotAsked => DogState::NotAsked,
            Dog::Armed(dog) => DogState::Armed(dog.real()),
            Dog::Refused => DogState::Refused,
        };
        self.shared.say(&Said {
            guard: std::process::id(),
            alive_at: now,
            plan: if self.hand.is_ready() { self.plan } else { 0 },
            dog,
            fired: self.fired,
            fired_token: self.fired_token,
            fired_deadline: self.fired_deadline,
            late: self.meter.summary(),
            late_hour: self.meter.last_hour(),
        });
    }

    /// What has begun is brought to its end first.
    fn may_end(&self) -> bool {
        self.episode.is_none() && self.reset == Reset::No
    }

    /// The watchdog stops only where nothing runs, verified. Else it goes on, and the next guard feeds it in time.
    fn end(self) {
        let idle = self.known.is_none_or(|told| told.standing == Standing::Idle);
        match self.dog {
            Dog::Armed(dog) if idle => dog.release(),
            Dog::Armed(dog) => {
                say!(
                    "ends while resources may be up: the watchdog fires in {} unless another guard feeds it",
                    dog.real()
                );
            }
            Dog::NotAsked | Dog::Refused => {}
        }
        say!("ends");
    }
}

fn load(plan: &mut Plan, path: &CString, id: Option<u64>, space: &mut [u8; LARGEST]) -> bool {
    let opened = openat(CWD, path.as_c_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    opened.is_ok_and(|fd| plan.load(&mut File::from(fd), id, space))
}

/// A plan comes before the first resource starts; so this may take memory.
fn arm(dog: &mut Dog, plan: &Plan) {
    let Some(wanted) = plan.dog() else { return };
    if let Dog::Armed(_) = dog {
        return;
    }
    *dog = match watchdog::open(&wanted.device, wanted.least, wanted.most) {
        Ok(armed) => {
            say!("{} is armed: it fires after {}", wanted.device.display(), armed.real());
            Dog::Armed(armed)
        }
        Err(error) => {
            say!("{error}");
            Dog::Refused
        }
    };
}

/// No right reaches further than T − M from now.
fn is_sane(told: &Told, now: Instant) -> bool {
    told.standing == Standing::Idle || told.deadline <= now.after(told.right)
}

/// For a guard that knows nothing and reads nothing: as if the lease had ended then.
fn worst(since: Instant) -> Told {
    Told {
        standing: Standing::Armed,
        deadline: since,
        token: Token::NONE,
        right: Span::ZERO,
        kill_after: Span::ZERO,
        reset_after: UNREADABLE_RESET,
        beat_within: Span::ZERO,
        plan: 0,
        daemon: 0,
    }
}

/// "lease of token 42 ran out 7ms ago"
struct Ran<'t>(&'t Told, Instant);

impl std::fmt::Display for Ran<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Ran(told, now) = self;
        write!(f, "lease of token {} ran out {} ago", told.token, now.since(told.deadline))
    }
}
