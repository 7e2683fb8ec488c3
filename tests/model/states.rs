//! Which worlds are one state.

use leasehold::core::{Epoch, Incarnation, Job, Lens, Token};

use super::machine::Machine;
use super::world::{Fresh, World};

impl World {
    pub fn fingerprint(&self) -> u64 {
        let mut lens = Lens::new(self.now, self.setup.horizon());
        let daemons = self.machines.iter().filter_map(|m| m.daemon.as_ref());
        daemons.for_each(|node| lens.gather_node(node));
        lens.gather(Incarnation(0), &(&self.held, &self.fresh));
        lens.focus();
        let machine = |machine: &Machine| {
            let newest = (self.newest_job(machine), machine.service.epoch);
            let Machine { id: _, powered, up, boots, lives, daemon: _, ready, disk, writing, stalled_until, .. } =
                machine;
            let Machine { run_time, deadline, sole, service, .. } = machine;
            let rest =
                (powered, up, boots, lives, ready, disk, (writing, stalled_until), run_time, deadline, sole, service);
            (machine.daemon.as_ref().map(|node| lens.node(node)), lens.hash(Incarnation(0), newest, &rest))
        };
        let newest = (Job(0), Epoch(0));
        let works: Vec<_> = self.works.iter().map(|w| w.seen_from(self)).collect();
        let rest = (&self.fresh_seen(), &self.held, &works, &self.store, self.cut, self.budget, &self.judge);
        let rest = lens.hash(Incarnation(0), newest, &rest);
        lens.hash(Incarnation(0), newest, &(self.machines.each_ref().map(machine), rest))
    }

    /// Jobs are compared for equality only: each machine's own numbering starts at its oldest one.
    fn newest_job(&self, machine: &Machine) -> Job {
        self.works.iter().filter(|w| w.caller == machine.id).map(|w| w.job).max().unwrap_or(Job(0))
    }

    fn fresh_seen(&self) -> Vec<Fresh> {
        let plain = |f: &Fresh| match *f {
            Fresh::Job(id, _) => Fresh::Job(id, Job(0)),
            other => other,
        };
        self.fresh.iter().map(plain).collect()
    }

    /// The highest token anywhere on a disk: what bounds a path that mints for ever.
    pub fn highest_token(&self) -> Token {
        self.machines.iter().filter_map(|m| m.disk).map(|r| r.highest_token).max().unwrap_or(Token::NONE)
    }
}
