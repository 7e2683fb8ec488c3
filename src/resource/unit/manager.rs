//! The service manager by D-Bus (org.freedesktop.systemd1(5)), each question with a limit.
//!
//! When the bus is gone, or does not answer, the control group tells and does what is needed for a stop (casebook C32: D-Bus
//! is gone 1 s into the stop).

use std::collections::HashMap;
use std::future::poll_fn;
use std::path::PathBuf;
use std::pin::Pin;
use std::time::Duration;

use futures_core::Stream as _;
use tokio::time::{sleep, timeout};
use zbus::connection::Builder;
use zbus::message::{Message, Type};
use zbus::{Connection, MatchRule, MessageStream, OwnedObjectPath, OwnedVariant};

const SERVICE: &str = "org.freedesktop.systemd1";
const PATH: &str = "/org/freedesktop/systemd1";
const MANAGER: &str = "org.freedesktop.systemd1.Manager";
const UNIT: &str = "org.freedesktop.systemd1.Unit";
const UNIT_OF_SERVICE: &str = "org.freedesktop.systemd1.Service";
const PROPERTIES: &str = "org.freedesktop.DBus.Properties";

const PRIVATE: &str = "/run/systemd/private";

/// Until the bus lets in and systemd answers on it: milliseconds, unless the machine is sick.
const DOOR_LIMIT: Duration = Duration::from_millis(1500);
/// Of one call. systemd answers in milliseconds, but while it reads all its units anew (daemon-reload).
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// A signal may be lost: the job is looked for besides.
const JOB_POLL: Duration = Duration::from_millis(500);

/// Where the service manager is found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// D-Bus address of the bus that the manager is on; `None`: the system bus.
    pub bus: Option<String>,
    /// Its process id, whose control group shows where all others begin.
    pub pid: i32,
}

impl Default for Host {
    fn default() -> Host {
        Host { bus: None, pid: 1 }
    }
}

impl Host {
    /// Where the manager itself listens, for root alone, without a bus (systemd: src/core/dbus.c).
    pub fn private_socket(&self) -> PathBuf {
        match self.pid {
            1 => PathBuf::from(PRIVATE),
            pid => PathBuf::from(format!("/proc/{pid}/root{PRIVATE}")),
        }
    }
}

/// The bytes of `StopUnit`, for whoever has no bus. `None`: no such name can be sent.
pub fn stop_call(unit: &str) -> Option<Vec<u8>> {
    let call = Message::method_call(PATH, "StopUnit").interface(MANAGER).destination(SERVICE);
    let message = call.build(&(unit, "replace")).ok()?;
    Some(message.data().to_vec())
}

/// Why the manager did not do it.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ManagerError {
    #[error("the service manager cannot be reached: {0}; see `systemctl status dbus`")]
    Unreachable(String),
    #[error("the service manager did not answer to {what} within {limit:?}")]
    Silent { what: &'static str, limit: Duration },
    #[error("{what}: {said}")]
    Failed { what: &'static str, said: String },
}

/// How a job ended, in the words of systemd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JobEnd {
    Told(String),
    /// It is gone, and its signal was not seen: the unit's state tells.
    Unseen,
}

/// What systemd says of a unit.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Picture {
    pub load: String,
    pub active: String,
    pub sub: String,
    pub file_state: String,
    pub result: String,
    /// 0: none.
    pub job: u32,
    pub stop_limit: Duration,
    /// Units that start it along with themselves.
    pub pulled_by: Vec<String>,
    /// Sockets, timers and paths that start it.
    pub triggered_by: Vec<String>,
}

impl Picture {
    pub fn is_up(&self) -> bool {
        matches!(self.active.as_str(), "active" | "reloading" | "refreshing")
    }

    /// Nothing of it runs, and nothing is about to.
    pub fn is_down(&self) -> bool {
        matches!(self.active.as_str(), "inactive" | "failed") && self.job == 0
    }
}

/// An open connection.
#[derive(Debug, Clone)]
pub struct Manager(Connection);

impl Manager {
    pub async fn open(host: &Host) -> Result<Manager, ManagerError> {
        let bus = host.bus.as_deref().map_or_else(Builder::system, Builder::address);
        open_door(bus).await.map_err(ManagerError::Unreachable)
    }

    /// The ends of all jobs from now on.
    pub async fn jobs(&self) -> Result<MessageStream, ManagerError> {
        self.call("Subscribe", &()).await?;
        self.signals(MANAGER, "JobRemoved", PATH).await
    }

    /// The changes of one unit from now on.
    pub async fn changes(&self, unit: &str) -> Result<MessageStream, ManagerError> {
        self.call("Subscribe", &()).await?;
        let path = self.path_of(unit).await?;
        self.signals(PROPERTIES, "PropertiesChanged", path.as_str()).await
    }

    pub async fn start(&self, unit: &str) -> Result<OwnedObjectPath, ManagerError> {
        job_of("StartUnit", &self.patient_call("StartUnit", &(unit, "replace")).await?)
    }

    pub async fn stop(&self, unit: &str) -> Result<OwnedObjectPath, ManagerError> {
        job_of("StopUnit", &self.call("StopUnit", &(unit, "replace")).await?)
    }

    pub async fn reload(&self, unit: &str) -> Result<OwnedObjectPath, ManagerError> {
        job_of("ReloadUnit", &self.call("ReloadUnit", &(unit, "replace")).await?)
    }

    /// SIGKILL to every process of it, those of its stop commands too.
    pub async fn kill(&self, unit: &str) -> Result<(), ManagerError> {
        const SIGKILL: i32 = 9;
        self.call("KillUnit", &(unit, "all", SIGKILL)).await.map(drop)
    }

    /// Forgets that it failed, and how often it was started lately.
    pub async fn reset_failed(&self, unit: &str) -> Result<(), ManagerError> {
        self.call("ResetFailedUnit", &unit).await.map(drop)
    }

    pub async fn picture(&self, unit: &str) -> Result<Picture, ManagerError> {
        let path = self.path_of(unit).await?;
        let mut all = Properties(self.properties(&path, UNIT).await?);
        // A unit that cannot be loaded has no properties of a service.
        all.0.extend(self.properties(&path, UNIT_OF_SERVICE).await.unwrap_or_default());
        let pulling = ["WantedBy", "RequiredBy", "RequisiteOf", "BoundBy", "UpheldBy"];
        Ok(Picture {
            load: all.text("LoadState"),
            active: all.text("ActiveState"),
            sub: all.text("SubState"),
            file_state: all.text("UnitFileState"),
            result: all.text("Result"),
            job: all.job(),
            stop_limit: all.microseconds("TimeoutStopUSec"),
            pulled_by: pulling.iter().flat_map(|name| all.texts(name)).collect(),
            triggered_by: all.texts("TriggeredBy"),
        })
    }

    /// Waits for the end of one job.
    pub async fn end_of(
        &self,
        jobs: &mut MessageStream,
        job: &OwnedObjectPath,
        unit: &str,
    ) -> Result<JobEnd, ManagerError> {
        loop {
            tokio::select! {
                biased;
                message = next(jobs) => {
                    let message = message.ok_or_else(|| ManagerError::Unreachable("the connection broke".to_owned()))?;
                    if let Some(result) = result_of(&message, job) {
                        return Ok(JobEnd::Told(result));
                    }
                }
                () = sleep(JOB_POLL) => {
                    if self.picture(unit).await?.job == 0 {
                        return Ok(JobEnd::Unseen);
                    }
                }
            }
        }
    }

    async fn signals(
        &self,
        interface: &'static str,
        member: &'static str,
        path: &str,
    ) -> Result<MessageStream, ManagerError> {
        let failed = |error: zbus::Error| ManagerError::Failed { what: member, said: error.to_string() };
        let rule = MatchRule::builder().msg_type(Type::Signal).interface(interface).member(member).path(path).build();
        let rule = rule.map_err(failed)?.into_owned();
        limited(member, MessageStream::for_match_rule(rule, &self.0, None)).await
    }

    async fn path_of(&self, unit: &str) -> Result<OwnedObjectPath, ManagerError> {
        job_of("LoadUnit", &self.call("LoadUnit", &unit).await?)
    }

    async fn properties(
        &self,
        path: &OwnedObjectPath,
        interface: &'static str,
    ) -> Result<HashMap<String, OwnedVariant>, ManagerError> {
        let asked = self.0.call_method(Some(SERVICE), path.as_ref(), Some(PROPERTIES), "GetAll", &interface);
        let reply = limited("GetAll", asked).await?;
        reply.body().deserialize().map_err(|error| odd("GetAll", &error))
    }

    async fn call<B>(&self, method: &'static str, body: &B) -> Result<Message, ManagerError>
    where
        B: serde::Serialize + zbus::DynamicType + Sync,
    {
        limited(method, self.0.call_method(Some(SERVICE), PATH, Some(MANAGER), method, body)).await
    }

    /// As [`Manager::call`], for as long as it takes.
    async fn patient_call<B>(&self, method: &'static str, body: &B) -> Result<Message, ManagerError>
    where
        B: serde::Serialize + zbus::DynamicType + Sync,
    {
        let asked = self.0.call_method(Some(SERVICE), PATH, Some(MANAGER), method, body);
        asked.await.map_err(|error| ManagerError::Failed { what: method, said: error.to_string() })
    }
}

/// Connects, and asks whether systemd is there: a bus without it is of no use.
async fn open_door(builder: Builder<'_>) -> Result<Manager, String> {
    let opening = async {
        let connection = builder.build().await?;
        connection.call_method(Some(SERVICE), PATH, Some("org.freedesktop.DBus.Peer"), "Ping", &()).await?;
        Ok(Manager(connection))
    };
    match timeout(DOOR_LIMIT, opening).await {
        Ok(opened) => opened.map_err(|error: zbus::Error| error.to_string()),
        Err(_) => Err(format!("no answer within {DOOR_LIMIT:?}")),
    }
}

async fn limited<T>(what: &'static str, call: impl Future<Output = zbus::Result<T>>) -> Result<T, ManagerError> {
    match timeout(CALL_LIMIT, call).await {
        Ok(done) => done.map_err(|error| ManagerError::Failed { what, said: error.to_string() }),
        Err(_) => Err(ManagerError::Silent { what, limit: CALL_LIMIT }),
    }
}

/// The next message; `None` when the connection is over.
pub async fn next(messages: &mut MessageStream) -> Option<Message> {
    loop {
        match poll_fn(|cx| Pin::new(&mut *messages).poll_next(cx)).await {
            Some(Ok(message)) => return Some(message),
            Some(Err(_)) => {}
            None => return None,
        }
    }
}

/// The result, if the message tells the end of this job.
fn result_of(message: &Message, job: &OwnedObjectPath) -> Option<String> {
    let (_, path, _, result): (u32, OwnedObjectPath, String, String) = message.body().deserialize().ok()?;
    (path == *job).then_some(result)
}

fn job_of(method: &'static str, reply: &Message) -> Result<OwnedObjectPath, ManagerError> {
    reply.body().deserialize().map_err(|error| odd(method, &error))
}

fn odd(what: &'static str, error: &zbus::Error) -> ManagerError {
    ManagerError::Failed { what, said: format!("an answer in a form that is not systemd's: {error}") }
}

/// All properties of a unit, by name.
struct Properties(HashMap<String, OwnedVariant>);

impl Properties {
    fn text(&self, name: &str) -> String {
        let text = self.0.get(name).and_then(|value| <&str>::try_from(value).ok());
        text.unwrap_or_default().to_owned()
    }

    fn texts(&self, name: &str) -> Vec<String> {
        let value = self.0.get(name).and_then(|value| value.try_clone().ok());
        value.and_then(|value| Vec::<String>::try_from(value).ok()).unwrap_or_default()
    }

    /// `infinity` is the largest number.
    fn microseconds(&self, name: &str) -> Duration {
        let value = self.0.get(name).and_then(|value| u64::try_from(value).ok());
        value.map_or(Duration::ZERO, |us| if us == u64::MAX { Duration::MAX } else { Duration::from_micros(us) })
    }

    fn job(&self) -> u32 {
        let value = self.0.get("Job").and_then(|value| <&zbus::Structure<'_>>::try_from(value).ok());
        let first = value.and_then(|pair| pair.fields().first());
        first.and_then(|id| u32::try_from(id).ok()).unwrap_or(0)
    }
}
