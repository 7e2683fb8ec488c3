//! The daemon's side of the guard (protocol section 7): what it is told, and whether it stands.
//!
//! ```text
//!   ArmLease ─────────▶ deadline, token          StartResources, AdoptResources ─▶ resources may be up
//!   DisarmLease ──────▶ stopping, never later    ResourcesStopped ───────────────▶ nothing runs here
//! ```
//!
//! Each of these is a few stores into shared memory, done before whatever follows is ordered.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::{Config, GuardProcess};
use crate::core::{BootId, Instant, Span, Token};
use crate::guard::farewell::Farewell;
use crate::guard::plan::{self, Dog, PlanError};
use crate::os::bell::Bell;
use crate::os::clock;
use crate::os::shared::{Content, DogState, Said, Shared, Standing, Told};
use crate::resource::Remains;

/// A guard looks at least once a second; three misses are no hiccup.
const ALIVE: Span = Span::from_secs(3);
const NO_GUARD: &str = "the guard does not run, and without it nobody enforces the lease: `systemctl status \
    leasehold-guard`, or write `process = \"none\"` in [guard]";

/// Stands in the plan for what cannot be named any more.
const EARLIER: &str = "(of an earlier configuration)";

/// Why the guard cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum EnforcerError {
    #[error("cannot share memory with the guard in {}: {source}", path.display())]
    Memory { path: std::path::PathBuf, source: std::io::Error },
    #[error(transparent)]
    Plan(#[from] PlanError),
}

/// Shared by the loop, which tells, and the worker, which asks.
#[derive(Debug)]
pub struct Enforcer {
    shared: Shared,
    bell: Bell,
    process: GuardProcess,
    /// The longest time of a watchdog with which this configuration is right.
    dog_within: Option<Span>,
    told: Mutex<Told>,
    /// Of this configuration; what is told until the next arming may be an earlier, shorter one.
    times: Times,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    right: Span,
    kill_after: Span,
    reset_after: Span,
}

impl Enforcer {
    /// Hands the plan over, and goes on with what an earlier daemon of this boot told: a new daemon makes no lease longer
    /// and takes nothing for stopped.
    ///
    /// # Errors
    /// The run-time directory cannot be used.
    pub fn open(
        config: &Config,
        boot: BootId,
        remains: &Remains,
        farewells: &[Farewell],
    ) -> Result<Enforcer, EnforcerError> {
        let directory = &config.paths.runtime;
        let memory = |source| EnforcerError::Memory { path: directory.clone(), source };
        let shared = Shared::open(directory, boot).map_err(memory)?;
        let bell = Bell::open(directory).map_err(memory)?;
        let dog = dog(config);
        let found = shared.told();
        let remains = remains.clone().and(left_running(directory, &found));
        let plan = plan::save(directory, &remains, dog.as_ref(), farewells)?;
        let times = Times::of(config);
        let fresh = fresh(config, times, plan);
        let told = match found {
            Content::Never => fresh,
            Content::Told(left) => goes_on(left, fresh),
            // Something was told, and nobody knows what: it counts as running, and as ended.
            Content::Unreadable => Told { standing: Standing::Stopping, deadline: clock::now(), ..fresh },
        };
        let process = config.guard.process;
        let enforcer =
            Enforcer { shared, bell, process, dog_within: dog.map(|dog| dog.most), told: Mutex::new(told), times };
        enforcer.change(|_| {});
        Ok(enforcer)
    }

    /// A right to act until `deadline`. A stop under way keeps the deadline that it has.
    pub fn arm(&self, deadline: Instant, token: Token) {
        let Times { right, kill_after, reset_after } = self.times;
        let mut told = self.told();
        if told.standing == Standing::Stopping {
            return;
        }
        let nearer = deadline < told.deadline || told.standing == Standing::Idle;
        // Resources that are kept up without a daemon have no end that the guard could enforce.
        let right = if deadline == Instant::NEVER { Span(Instant::NEVER.0) } else { right };
        *told = Told { deadline, token, right, kill_after, reset_after, ..*told };
        self.shared.tell(&told);
        if nearer {
            self.bell.ring();
        }
    }

    /// As [`Enforcer::arm`], of what an earlier daemon left: no right of its reaches further than one of this would.
    pub fn adopt(&self, deadline: Instant, token: Token) {
        self.arm(deadline.min(clock::now().after(self.times.right)), token);
    }

    /// From here on resources may be up.
    pub fn may_be_up(&self) {
        self.change(|told| told.standing = Standing::Armed);
    }

    /// The daemon stops them in good order, and the deadline moves no more.
    pub fn disarm(&self, deadline: Instant) {
        self.change(|told| {
            if told.standing != Standing::Idle {
                (told.standing, told.deadline) = (Standing::Stopping, told.deadline.min(deadline));
            }
        });
    }

    /// Nothing runs here any more, verified.
    pub fn stopped(&self) {
        self.change(|told| told.standing = Standing::Idle);
    }

    /// The loop went round.
    pub fn beat(&self) {
        self.shared.beat(clock::now());
    }

    /// Whether a resource may start here; else why not.
    pub fn stands(&self, now: Instant) -> Result<(), String> {
        match (self.process, self.shared.said()) {
            (GuardProcess::None, _) => Ok(()),
            (GuardProcess::Required, Content::Told(said)) if now.since(said.alive_at) <= ALIVE => self.suffices(&said),
            (GuardProcess::Required, _) => Err(NO_GUARD.to_owned()),
        }
    }

    /// What the guard says of itself, if it lives.
    pub fn guard(&self, now: Instant) -> Option<Said> {
        match self.shared.said() {
            Content::Told(said) if now.since(said.alive_at) <= ALIVE => Some(said),
            Content::Told(_) | Content::Never | Content::Unreadable => None,
        }
    }

    fn suffices(&self, said: &Said) -> Result<(), String> {
        if said.plan != self.told().plan {
            return Err("the guard has not taken the emergency plan over yet".to_owned());
        }
        match said.dog {
            DogState::Refused if self.dog_within.is_some() => {
                Err("the guard could not arm the hardware watchdog: `journalctl -u \
                leasehold-guard` says why; mend that, or write `watchdog = \"none\"` in [guard]"
                    .to_owned())
            }
            DogState::NotAsked if self.dog_within.is_some() => {
                Err("the guard has not armed the watchdog yet".to_owned())
            }
            DogState::Armed(real) if self.dog_within.is_some_and(|most| real > most) => Err(format!(
                "the guard's watchdog was armed for an earlier configuration and fires after {real}, too late for this \
                 one: `systemctl restart leasehold-guard` while nothing runs here"
            )),
            DogState::Refused | DogState::NotAsked | DogState::Armed(_) => Ok(()),
        }
    }

    fn change(&self, change: impl FnOnce(&mut Told)) {
        let mut told = self.told();
        change(&mut told);
        self.shared.tell(&told);
        self.bell.ring();
    }

    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Times {
    /// The arithmetic of protocol section 2: S, and M − 2ρT − R.
    fn of(config: &Config) -> Times {
        let t = &config.timing;
        Times { right: t.term.minus(t.margin), kill_after: t.stop_budget, reset_after: t.reset_after() }
    }
}

fn dog(config: &Config) -> Option<Dog> {
    let most = config.timing.watchdog?;
    let least = config.timing.stop_budget.plus(config.timing.interval);
    Some(Dog { device: config.guard.device.clone(), most, least })
}

fn fresh(config: &Config, times: Times, plan: u64) -> Told {
    Told {
        standing: Standing::Idle,
        deadline: Instant(0),
        token: Token::NONE,
        right: times.right,
        kill_after: times.kill_after,
        reset_after: times.reset_after,
        // Silence of D/2 makes a peer doubtful; the same holds for one's own daemon.
        beat_within: config.timing.dead_after.half(),
        plan,
        daemon: std::process::id(),
    }
}

/// What an earlier configuration may have left running: until a stop was verified the guard has to end that as well. A
/// plan that nobody can read any more may have had anything in it.
fn left_running(directory: &Path, found: &Content<Told>) -> Remains {
    let lost = || Remains { hidden: vec![EARLIER.to_owned()], ..Remains::default() };
    match found {
        Content::Never => Remains::default(),
        Content::Told(told) if told.standing == Standing::Idle => Remains::default(),
        Content::Told(told) => plan::remains(directory, told.plan).unwrap_or_else(lost),
        Content::Unreadable => lost(),
    }
}

/// What was promised under another configuration is kept where it is shorter.
fn goes_on(left: Told, fresh: Told) -> Told {
    Told {
        standing: left.standing,
        // What was kept up without a daemon has an end again.
        deadline: left.deadline.min(clock::now().after(fresh.right)),
        token: left.token,
        kill_after: left.kill_after.min(fresh.kill_after),
        reset_after: left.reset_after.min(fresh.reset_after),
        ..fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::os::stall::Stalls;

    fn config(directory: &std::path::Path, more: &str) -> Config {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("config/leasehold.toml");
        let mut config = crate::config::load(&path).expect("the sample is right").config;
        config.paths.runtime = directory.to_owned();
        if more == "none" {
            config.guard.process = GuardProcess::None;
        }
        config
    }

    const BOOT: BootId = BootId([3; 16]);

    fn open(config: &Config) -> (Enforcer, Shared) {
        let enforcer = Enforcer::open(config, BOOT, &Remains::default(), &[]).unwrap();
        (enforcer, Shared::open(&config.paths.runtime, BOOT).unwrap())
    }

    fn told(shared: &Shared) -> Told {
        match shared.told() {
            Content::Told(told) => told,
            other => panic!("{other:?}"),
        }
    }

    fn said(enforcer: &Enforcer) -> Said {
        Said {
            guard: 1,
            alive_at: Instant(5),
            plan: enforcer.told().plan,
            dog: DogState::NotAsked,
            fired: crate::os::shared::Fired::No,
            fired_token: Token::NONE,
            fired_deadline: Instant(0),
            late: Stalls::default(),
            late_hour: Stalls::default(),
        }
    }

    #[test]
    fn a_stop_fixes_the_deadline_and_only_a_verified_stop_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let (enforcer, shared) = open(&config(dir.path(), ""));
        assert_eq!(told(&shared).standing, Standing::Idle);
        enforcer.arm(Instant(70), Token(4));
        assert_eq!(told(&shared).standing, Standing::Idle, "a right alone runs nothing");
        enforcer.may_be_up();
        enforcer.arm(Instant(90), Token(4));
        assert_eq!((told(&shared).standing, told(&shared).deadline), (Standing::Armed, Instant(90)));
        enforcer.disarm(Instant(95));
        enforcer.arm(Instant(99), Token(4));
        assert_eq!((told(&shared).standing, told(&shared).deadline), (Standing::Stopping, Instant(90)));
        enforcer.disarm(Instant(80));
        assert_eq!(told(&shared).deadline, Instant(80), "nearer is possible: a stale primary stops now");
        enforcer.stopped();
        assert_eq!(told(&shared).standing, Standing::Idle);
        enforcer.disarm(Instant(60));
        assert_eq!(told(&shared).standing, Standing::Idle, "a daemon that joins claims nothing");
    }

    #[test]
    fn the_next_daemon_goes_on_with_what_was_told_and_makes_nothing_longer() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path(), "");
        let (first, _) = open(&config);
        first.arm(Instant(70), Token(4));
        first.may_be_up();
        let before = *first.told();
        config.timing.margin = config.timing.margin.plus(Span::from_secs(50));
        config.timing.term = config.timing.term.plus(Span::from_secs(60));
        let (next, shared) = open(&config);
        let after = told(&shared);
        assert_eq!((after.standing, after.deadline, after.token), (Standing::Armed, Instant(70), Token(4)));
        assert_eq!((after.reset_after, after.kill_after), (before.reset_after, before.kill_after));
        next.arm(Instant(75), Token(4));
        assert!(told(&shared).reset_after > before.reset_after, "the next lease is one of the new configuration");
    }

    #[test]
    fn what_is_kept_without_a_daemon_has_no_end_until_the_next_one_comes() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "");
        let (first, shared) = open(&config);
        first.arm(clock::now().after(first.times.right), Token(4));
        first.may_be_up();
        first.arm(Instant::NEVER, Token(4));
        let kept = told(&shared);
        assert!((kept.standing, kept.deadline) == (Standing::Armed, Instant::NEVER));
        assert!(kept.deadline <= clock::now().after(kept.right), "the guard believes it");
        drop(first);
        let (next, shared) = open(&config);
        let after = told(&shared);
        assert_eq!((after.standing, after.token, after.right), (Standing::Armed, Token(4), next.times.right));
        assert!(after.deadline <= clock::now().after(after.right));
    }

    #[test]
    fn what_cannot_be_read_counts_as_running_and_ended() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "");
        let page = [0x5a; 4096];
        std::fs::write(dir.path().join("guard"), page).unwrap();
        let (_, shared) = open(&config);
        let told = told(&shared);
        assert_eq!(told.standing, Standing::Stopping);
        assert!(told.deadline <= clock::now() && told.deadline > Instant(0));
    }

    #[test]
    fn nothing_starts_without_a_guard_that_holds_the_plan_and_has_armed_the_watchdog() {
        let dir = tempfile::tempdir().unwrap();
        let mut config = config(dir.path(), "");
        config.timing.watchdog = None;
        let (enforcer, shared) = open(&config);
        let why = |enforcer: &Enforcer| enforcer.stands(Instant(6)).unwrap_err();
        assert!(why(&enforcer).contains("systemctl status leasehold-guard"));
        shared.say(&Said { plan: 1, ..said(&enforcer) });
        assert!(why(&enforcer).contains("emergency plan"));
        shared.say(&said(&enforcer));
        assert_eq!(enforcer.stands(Instant(6)), Ok(()));
        assert!(enforcer.stands(Instant(6).after(ALIVE)).is_err(), "a guard that does not look any more");

        config.timing.watchdog = Some(Span::from_secs(10));
        let (enforcer, _) = open(&config);
        shared.say(&said(&enforcer));
        assert!(why(&enforcer).contains("not armed the watchdog yet"));
        shared.say(&Said { dog: DogState::Refused, ..said(&enforcer) });
        assert!(why(&enforcer).contains("watchdog = \"none\""));
        shared.say(&Said { dog: DogState::Armed(Span::from_secs(9)), ..said(&enforcer) });
        assert_eq!(enforcer.stands(Instant(6)), Ok(()));
        shared.say(&Said { dog: DogState::Armed(Span::from_secs(11)), ..said(&enforcer) });
        assert!(why(&enforcer).contains("systemctl restart leasehold-guard"), "armed for another configuration");
    }

    #[test]
    fn what_an_earlier_configuration_runs_is_ended_as_well_until_a_stop_was_verified() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "none");
        let of = |name: &str| Remains { marks: vec![format!("LEASEHOLD_RESOURCE={name}:a")], ..Remains::default() };
        let open = |name: &str| Enforcer::open(&config, BOOT, &of(name), &[]).unwrap();
        let planned = |enforcer: &Enforcer| plan::remains(dir.path(), enforcer.told().plan).unwrap();
        let first = open("kelp");
        first.may_be_up();
        let both = open("eelgrass");
        assert_eq!(planned(&both), of("eelgrass").and(of("kelp")));
        assert_eq!(planned(&open("eelgrass")), of("eelgrass").and(of("kelp")), "each once");
        both.stopped();
        assert_eq!(planned(&open("eelgrass")), of("eelgrass"));

        open("eelgrass").may_be_up();
        std::fs::remove_file(dir.path().join(plan::FILE)).unwrap();
        assert_eq!(planned(&open("kelp")).hidden, [EARLIER], "nobody knows what it was");
    }

    #[test]
    fn a_configuration_without_a_guard_asks_for_none() {
        let dir = tempfile::tempdir().unwrap();
        let (enforcer, _) = open(&config(dir.path(), "none"));
        assert_eq!(enforcer.stands(Instant(6)), Ok(()));
    }

    #[test]
    fn the_reset_point_is_that_of_the_protocol() {
        let dir = tempfile::tempdir().unwrap();
        let config = config(dir.path(), "");
        let (t, times) = (config.timing, Times::of(&config));
        let drift = Span((u128::from(t.term.0) * 2 * u128::from(t.drift_ppm) / 1_000_000) as u64);
        let latest = t.pause.plus(t.stop_budget);
        assert!(times.reset_after >= latest, "P + S fit before the reset: {} and {latest}", times.reset_after);
        assert!(times.reset_after.plus(t.reset).plus(drift) <= t.margin);
        assert_eq!(times.right, t.term.minus(t.margin));
    }
}
