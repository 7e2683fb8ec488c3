//! Proves every agent again and again while nothing is wrong: nobody should learn at a failover that the password of
//! the BMC was changed in spring.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use crate::config::{AgentKind, Config};
use crate::core::Span;
use crate::fence::FencePlan;
use crate::os::machine;

use super::note::{Inbox, Note};

/// First looks are this far apart: all agents at once would be a burst of logins at one management controller.
const SPREAD: Duration = Duration::from_millis(50);
/// A look that gave way to an attempt is made up for this soon; attempts come at the pace of their limits, seconds.
const GAVE_WAY: Duration = Duration::from_secs(1);
/// The first look that fails is followed by another one so soon: a hiccup should not stand for a whole interval. Only
/// one: a BMC may lock out whoever comes again and again with a wrong password.
const SECOND_LOOK: Duration = Duration::from_secs(5);
/// Looks wander by this share of the interval, so that two nodes, or a hundred pairs, do not log in at one instant.
const JITTER_PERCENT: u64 = 20;

/// The agents that can be proven: all that this node runs, but for a person.
pub fn provable(config: &Config, plan: &FencePlan) -> Vec<usize> {
    let acts = |index: &usize| !matches!(config.fence.agents[*index].kind, AgentKind::Manual);
    plan.places().into_iter().filter(acts).collect()
}

/// One task an agent, so that a slow one delays no other. They end with the loop.
pub fn start(plan: &Arc<FencePlan>, agents: &[usize], interval: Span, inbox: &Inbox) {
    for (place, index) in agents.iter().enumerate() {
        let first = SPREAD * u32::try_from(place).unwrap_or(u32::MAX);
        tokio::spawn(again_and_again(Arc::clone(plan), *index, first, interval, inbox.clone()));
    }
}

async fn again_and_again(plan: Arc<FencePlan>, index: usize, first: Duration, interval: Span, inbox: Inbox) {
    let mut wait = first;
    let mut was_good = true;
    loop {
        sleep(wait).await;
        let Some(probed) = plan.prove(index).await else {
            wait = GAVE_WAY;
            continue;
        };
        let is_good = probed.health.is_good();
        if inbox.send(Note::Probed(probed)).is_err() {
            return;
        }
        let usual = jittered(interval, machine::random_u64().unwrap_or_default());
        wait = if was_good && !is_good { SECOND_LOOK.min(usual) } else { usual };
        was_good = is_good;
    }
}

/// Between 80 % and 120 % of the interval.
fn jittered(interval: Span, random: u64) -> Duration {
    let interval = Duration::from(interval);
    let percent = 100 - JITTER_PERCENT + random % (2 * JITTER_PERCENT + 1);
    interval.mul_f64(percent as f64 / 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_wander_around_the_interval() {
        let minute = Span::from_secs(60);
        let waits: Vec<u64> = (0..100).map(|random| jittered(minute, random).as_secs()).collect();
        assert!(waits.iter().all(|wait| (48..=72).contains(wait)), "{waits:?}");
        assert!(waits.contains(&48) && waits.contains(&60) && waits.contains(&72), "{waits:?}");
    }
}
