//! An address that moves with the service, on a named interface, by netlink.
//!
//! An IPv4 address is added with a host prefix, so that it takes no neighbour of its subnet along when it goes; the way
//! into the subnet, where nothing else on the interface provides it, is a route that goes with it. An IPv6 address keeps
//! its prefix, since the kernel counts there who else needs it. "Stopped" is a list of all interfaces without it.

mod find;
mod vigil;

use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::config::{AddressResource, Announce, Resource as Configured};
use crate::core::Token;
use crate::os::clock;
use crate::os::net::address::{AddressState, Detection, Events, Held, Interface, NetError, Netlink};
use crate::os::net::announce::{Answer, announce, hardware_text, probe, try_sockets};
use crate::os::net::remove::remove;

use super::{Context, Pending, Progress, Remains, Resource, ResourceError};
use find::View;
use vigil::{Sight, Told, Verdict, Vigil, WINDOW};

/// IPv4 alone: every other address of the subnet stays when one of this length goes.
const HOST_PREFIX: u8 = 32;
/// How often an address that another machine has is asked for again, until the start has lasted too long: the other one
/// may be about to let it go.
const ASK_AGAIN: Duration = Duration::from_millis(200);
/// How long, in steps, a start waits for a carrier that is there already: the kernel's link watch works once a second.
const SETTLES: u32 = 30;
const SETTLE: Duration = Duration::from_millis(50);
/// How often the duplicate detection of the kernel is looked at, beside its events.
const TENTATIVE_POLL: Duration = Duration::from_millis(50);
/// Between two rounds of removing what somebody else adds again.
const REMOVE_AGAIN: Duration = Duration::from_millis(10);
/// Between two announcements after the first burst: a neighbour that heard none of those has lost few packets by then.
const REMIND: Duration = Duration::from_secs(5);

/// One resource of kind `address`.
#[derive(Debug)]
pub struct Address {
    name: String,
    interface: String,
    config: AddressResource,
    start_timeout: Duration,
    stop_timeout: Duration,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    announcing: Option<JoinHandle<()>>,
    /// Who had the address when it was asked for last.
    rival: Option<String>,
    /// How often it was put back lately.
    put_back: usize,
    /// Why nobody reaches it, once that was told.
    strain: Option<String>,
    /// The interface is back, and has to stay.
    mending: bool,
    /// Losses of the carrier that the last look at readiness found.
    losses: Option<u32>,
}

/// What became of one try to get the address.
enum Taken {
    Ours(Interface),
    Theirs(String),
}

impl Address {
    /// `node`: the name of this node, whose interface is meant.
    pub fn new(configured: &Configured, config: &AddressResource, node: &str) -> Address {
        Address {
            name: configured.name.clone(),
            interface: config.interfaces.on(node).unwrap_or_default().to_owned(),
            config: config.clone(),
            start_timeout: configured.start_timeout.into(),
            stop_timeout: configured.stop_timeout.into(),
            state: Mutex::default(),
        }
    }

    async fn bring_up(&self) -> Result<(), ResourceError> {
        self.fall_silent();
        {
            let mut state = self.state();
            (state.rival, state.strain) = (None, None);
        }
        let taken = timeout(self.start_timeout, self.take()).await;
        let on = taken.unwrap_or_else(|_| Err(self.too_late()))?;
        self.announce(on);
        Ok(())
    }

    /// Left-overs go first, whatever else may fail.
    async fn take(&self) -> Result<Interface, ResourceError> {
        let netlink = self.open()?;
        self.remove_all(&netlink).await?;
        let mut patience = SETTLES;
        loop {
            let view = self.view(&netlink).await?;
            if patience > 0 && view.settles(&self.interface) {
                patience -= 1;
                sleep(SETTLE).await;
                continue;
            }
            let on = view.usable(&self.interface, &self.config).map_err(|what| self.start_error(what))?;
            match self.occupy(&netlink, on).await? {
                Taken::Ours(on) => return Ok(on),
                Taken::Theirs(who) => self.state().rival = Some(who),
            }
            sleep(ASK_AGAIN).await;
        }
    }

    /// Asks the segment, then adds it.
    async fn occupy(&self, netlink: &Netlink, on: &Interface) -> Result<Taken, ResourceError> {
        match self.config.address {
            IpAddr::V4(v4) => {
                if self.config.probe {
                    let asked = probe(on, v4).await.map_err(|e| self.other(format!("cannot ask the segment: {e}")))?;
                    if let Answer::Taken(hardware) = asked {
                        return Ok(Taken::Theirs(hardware_text(hardware)));
                    }
                }
                self.add(netlink, on).await?;
                Ok(Taken::Ours(on.clone()))
            }
            IpAddr::V6(_) => {
                let mut events = Events::open().map_err(|e| self.net(&e))?;
                self.add(netlink, on).await?;
                self.until_detected(netlink, on, &mut events).await
            }
        }
    }

    /// Waits for the kernel's duplicate address detection.
    async fn until_detected(
        &self,
        netlink: &Netlink,
        on: &Interface,
        events: &mut Events,
    ) -> Result<Taken, ResourceError> {
        loop {
            let view = self.view(netlink).await?;
            let entry = view.entries(&self.config).into_iter().find(|held| held.index == on.index);
            match entry.map(|held| (held.state, held)) {
                Some((AddressState::Usable, _)) => return Ok(Taken::Ours(on.clone())),
                Some((AddressState::Duplicate, held)) => {
                    remove(netlink, held).await.map_err(|e| self.net(&e))?;
                    return Ok(Taken::Theirs("another machine".to_owned()));
                }
                Some((AddressState::Tentative, _)) => {}
                None => return Err(self.start_error("somebody removed it while it was being checked".to_owned())),
            }
            // A socket for events that has ended costs only this pause.
            let _ = timeout(TENTATIVE_POLL, events.next()).await;
        }
    }

    /// Adds what is missing: the address, and the way into its subnet.
    async fn add(&self, netlink: &Netlink, on: &Interface) -> Result<(), ResourceError> {
        let (address, prefix) = (self.config.address, self.config.prefix);
        let (as_prefix, detection) = match (address, self.config.probe) {
            (IpAddr::V4(_), _) => (HOST_PREFIX, Detection::Off),
            (IpAddr::V6(_), true) => (prefix, Detection::On),
            (IpAddr::V6(_), false) => (prefix, Detection::Off),
        };
        self.unless_there(netlink.add(on, address, as_prefix, detection).await)?;
        let view = self.view(netlink).await?;
        self.connect(netlink, on, &view).await
    }

    async fn connect(&self, netlink: &Netlink, on: &Interface, view: &View) -> Result<(), ResourceError> {
        let (address, prefix) = (self.config.address, self.config.prefix);
        match address {
            IpAddr::V4(v4) if prefix < HOST_PREFIX && !view.reaches_subnet(on, &self.config) => {
                self.unless_there(netlink.add_subnet(on, v4, prefix).await)
            }
            IpAddr::V4(_) | IpAddr::V6(_) => Ok(()),
        }
    }

    async fn bring_down(&self) -> Result<(), ResourceError> {
        self.fall_silent();
        {
            let mut state = self.state();
            (state.put_back, state.strain) = (0, None);
        }
        let netlink = self.open()?;
        match timeout(self.stop_timeout, self.remove_all(&netlink)).await {
            Ok(removed) => removed,
            Err(_) => {
                let left = format!("{} is still there, or is added again and again by somebody", self.config.address);
                Err(ResourceError::Stuck { resource: self.name.clone(), limit: self.stop_timeout, left })
            }
        }
    }

    /// Removes it from every interface until a list has none of it.
    async fn remove_all(&self, netlink: &Netlink) -> Result<(), ResourceError> {
        loop {
            let view = self.view(netlink).await?;
            let entries = view.entries(&self.config);
            if entries.is_empty() {
                return Ok(());
            }
            for entry in entries {
                remove(netlink, entry).await.map_err(|e| self.net(&e))?;
                tracing::info!(resource = self.name, "removed {}/{}", entry.address, entry.prefix);
            }
            sleep(REMOVE_AGAIN).await;
        }
    }

    /// Takes over one that a former daemon left, and tells the segment again.
    async fn take_over(&self) -> Result<bool, ResourceError> {
        let netlink = self.open()?;
        let view = self.view(&netlink).await?;
        let Some(on) = view.interfaces.iter().find(|i| i.name == self.interface) else { return Ok(false) };
        let there = |held: &&Held| held.index == on.index && held.state == AddressState::Usable;
        let found = view.entries(&self.config).iter().any(there);
        if found {
            self.announce(on.clone());
        }
        Ok(found)
    }

    async fn is_nowhere(&self) -> Result<bool, ResourceError> {
        let netlink = self.open()?;
        Ok(self.view(&netlink).await?.entries(&self.config).is_empty())
    }

    async fn could_run(&self) -> Result<(), ResourceError> {
        let netlink = self.open()?;
        let view = self.view(&netlink).await?;
        let not_ready = |what| ResourceError::NotReady { resource: self.name.clone(), what };
        let on = view.usable(&self.interface, &self.config).map_err(not_ready)?;
        let before = self.state().losses.replace(on.carrier_losses);
        if before.is_some_and(|losses| losses != on.carrier_losses) {
            return Err(not_ready(format!("interface {} lost its carrier a moment ago", on.name)));
        }
        let refused = |e| not_ready(format!("nothing could be announced on {}: {e}; is CAP_NET_RAW missing?", on.name));
        try_sockets(on, self.config.address).map_err(refused)
    }

    async fn until_failed(&self) -> String {
        let mut vigil = Vigil::new(self.config.hold, self.config.put_back);
        if self.state().strain.is_some() {
            vigil = vigil.in_outage(clock::now());
        }
        let (mut events, mut trouble) = (None, None);
        loop {
            events = events.or_else(|| Events::open().ok());
            let looked = match self.look().await {
                Ok(sight) => self.heed(vigil.judge(sight, clock::now())).await,
                Err(error) => Err(error),
            };
            match looked {
                Ok(Some(failed)) => return failed,
                Ok(None) => trouble = None,
                // Not knowing is no failure: the next look may tell.
                Err(error) => tell_once(&mut trouble, error.to_string()),
            }
            self.note(&vigil);
            if !wait(events.as_mut(), self.config.monitor.into()).await {
                events = None;
            }
        }
    }

    /// What is there now. A missing way into the subnet is mended in passing.
    async fn look(&self) -> Result<Sight, ResourceError> {
        let netlink = self.open()?;
        let view = self.view(&netlink).await?;
        let on = match view.usable(&self.interface, &self.config) {
            Ok(on) => on,
            Err(why) => return Ok(Sight::NoLink(why)),
        };
        let entry = view.entries(&self.config).into_iter().find(|held| held.index == on.index);
        match entry.map(|held| held.state) {
            None => Ok(Sight::Missing),
            Some(AddressState::Duplicate) => Ok(Sight::Duplicate),
            Some(AddressState::Usable | AddressState::Tentative) => {
                self.connect(&netlink, on, &view).await?;
                Ok(Sight::Held)
            }
        }
    }

    fn note(&self, vigil: &Vigil) {
        let mut state = self.state();
        state.put_back = vigil.put_back();
        state.mending = vigil.is_back();
        if vigil.is_steady() && state.strain.take().is_some() {
            tracing::info!(resource = self.name, "interface {} is steady again", self.interface);
        }
    }

    async fn heed(&self, verdict: Verdict) -> Result<Option<String>, ResourceError> {
        match verdict {
            Verdict::Nothing => return Ok(None),
            Verdict::Failed(what) => {
                self.state().strain = None;
                return Ok(Some(what));
            }
            Verdict::Strained(what) => {
                let mut state = self.state();
                state.mending = false;
                let told = state.strain.replace(what.clone()).is_some();
                return Ok((!told).then_some(what));
            }
            Verdict::PutBack(Told::Now) => {
                tracing::warn!(resource = self.name, "somebody removed {}; it is put back", self.config.address);
            }
            Verdict::PutBack(Told::Before) => {}
            Verdict::Renew => tracing::info!(resource = self.name, "interface {} is back", self.interface),
        }
        self.renew().await.map(|()| None)
    }

    /// Puts back what is missing and tells the segment. Nobody is asked before: the address is ours.
    async fn renew(&self) -> Result<(), ResourceError> {
        let netlink = self.open()?;
        let view = self.view(&netlink).await?;
        let on = view.usable(&self.interface, &self.config).map_err(|what| self.other(what))?;
        self.add(&netlink, on).await?;
        self.announce(on.clone());
        Ok(())
    }

    /// Tells the segment at once, and goes on for a while in the background.
    fn announce(&self, on: Interface) {
        self.fall_silent();
        let (name, address, plan) = (self.name.clone(), self.config.address, self.config.announce);
        self.state().announcing = Some(tokio::spawn(keep_announcing(name, on, address, plan)));
    }

    fn fall_silent(&self) {
        if let Some(task) = self.state().announcing.take() {
            task.abort();
        }
    }

    fn open(&self) -> Result<Netlink, ResourceError> {
        Netlink::open().map_err(|e| self.net(&e))
    }

    async fn view(&self, netlink: &Netlink) -> Result<View, ResourceError> {
        let interfaces = netlink.interfaces().await.map_err(|e| self.net(&e))?;
        let addresses = netlink.addresses().await.map_err(|e| self.net(&e))?;
        Ok(View { interfaces, addresses })
    }

    fn unless_there(&self, result: Result<(), NetError>) -> Result<(), ResourceError> {
        match result {
            Err(error) if !error.exists() => Err(self.net(&error)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn too_late(&self) -> ResourceError {
        match self.state().rival.take() {
            Some(who) => {
                let (address, interface) = (self.config.address, &self.interface);
                self.start_error(format!(
                    "{address} is in use on the segment of {interface} by {who}; it was not taken"
                ))
            }
            None => ResourceError::StartTimeout { resource: self.name.clone(), limit: self.start_timeout },
        }
    }

    fn start_error(&self, what: String) -> ResourceError {
        ResourceError::Start { resource: self.name.clone(), what }
    }

    fn net(&self, error: &NetError) -> ResourceError {
        self.other(error.to_string())
    }

    fn other(&self, what: String) -> ResourceError {
        ResourceError::Other { resource: self.name.clone(), what }
    }

    /// A panic while the lock was held leaves whole values behind.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Address {
    fn drop(&mut self) {
        self.fall_silent();
    }
}

impl Resource for Address {
    fn name(&self) -> &str {
        &self.name
    }

    fn stop_budget(&self) -> Duration {
        self.stop_timeout
    }

    fn start<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.bring_up())
    }

    fn adopt<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<bool, ResourceError>> {
        Box::pin(self.take_over())
    }

    fn stop<'a>(&'a self, _context: &'a Context) -> Pending<'a, Result<(), ResourceError>> {
        Box::pin(self.bring_down())
    }

    fn kill(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.bring_down())
    }

    fn progress(&self) -> Option<Progress> {
        let times = self.state().put_back;
        let address = self.config.address;
        let told = || format!("{address} was removed by somebody and put back, {times} times within {WINDOW}").into();
        (times > 0).then(told)
    }

    fn is_stopped(&self) -> Pending<'_, Result<bool, ResourceError>> {
        Box::pin(self.is_nowhere())
    }

    fn ready(&self) -> Pending<'_, Result<(), ResourceError>> {
        Box::pin(self.could_run())
    }

    fn watch(&self) -> Pending<'_, String> {
        Box::pin(self.until_failed())
    }

    fn strain(&self) -> Option<String> {
        self.state().strain.clone()
    }

    fn is_mending(&self) -> bool {
        self.state().mending
    }

    fn set_token(&self, _token: Token) {}

    fn remains(&self) -> Remains {
        Remains { addresses: vec![self.config.address], ..Remains::default() }
    }
}

/// The same trouble again and again is one line.
fn tell_once(told: &mut Option<String>, text: String) {
    if told.as_ref() != Some(&text) {
        tracing::warn!("{text}; trying on");
        *told = Some(text);
    }
}

/// Waits for a change or for the next look. `false`: nothing would be heard of changes any more.
async fn wait(events: Option<&mut Events>, longest: Duration) -> bool {
    match events {
        Some(events) => !matches!(timeout(longest, events.next()).await, Ok(Err(_))),
        None => {
            sleep(longest).await;
            true
        }
    }
}

/// The first burst, then a reminder now and then: neighbours may have missed it, or been rebooting.
async fn keep_announcing(resource: String, on: Interface, address: IpAddr, plan: Announce) {
    let reminders = plan.afterwards.as_ms() / u64::try_from(REMIND.as_millis()).unwrap_or(u64::MAX);
    let burst = (0..plan.count).map(|n| if n == 0 { Duration::ZERO } else { plan.interval.into() });
    let mut told = false;
    for pause in burst.chain((0..reminders).map(|_| REMIND)) {
        sleep(pause).await;
        if let Err(error) = announce(&on, address)
            && !std::mem::replace(&mut told, true)
        {
            tracing::warn!(resource, "{address} cannot be announced on {}: {error}", on.name);
        }
    }
}
