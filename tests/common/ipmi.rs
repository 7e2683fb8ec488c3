//! A real BMC in software: `ipmi_sim` of OpenIPMI on a free port of 127.0.0.1, with a chassis script that tells the truth.
//!
//! The power is a file (`1` or `0`); what "off" and "on" do is a shell snippet of the test, for instance one that kills
//! a process group. Dropping it ends the simulator. It speaks RMCP+ with cipher suite 3 only.
#![allow(dead_code)] // each test program uses another part

use std::fs;
use std::path::{Path, PathBuf};

use leasehold::cli::demo::ipmi::{self, Simulator};
use leasehold::config::{IdentityCheck, IpmiAgent, SecretSource};
use leasehold::core::Span;

pub use leasehold::cli::demo::ipmi::USER;
pub const PASSWORD: &str = "s3cret-M4RK";

/// One simulated BMC with the machine behind it.
#[derive(Debug)]
pub struct Bmc {
    dir: tempfile::TempDir,
    simulator: Simulator,
}

impl Bmc {
    /// Whether this machine has the simulator and the client.
    pub fn available() -> bool {
        ipmi::missing().is_empty()
    }

    /// A machine that is on, and goes off and on as told.
    pub fn start() -> Bmc {
        Bmc::start_with("echo 0 > power", "echo 1 > power")
    }

    /// A machine that is on. `off` and `on` run in the BMC's directory when the chassis is told so; they have to
    /// write `0` or `1` to the file `power` themselves, when it is true. What they leave running must let go of stdout.
    pub fn start_with(off: &str, on: &str) -> Bmc {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let home = home(dir.path());
        let simulator = Simulator::start(&home, PASSWORD, &chassis(&home, off, on)).expect("ipmi_sim is installed");
        let bmc = Bmc { dir, simulator };
        bmc.set_power(true);
        bmc.write("calls", "");
        bmc
    }

    pub fn path(&self) -> PathBuf {
        home(self.dir.path())
    }

    pub fn port(&self) -> u16 {
        self.simulator.port()
    }

    pub fn password_file(&self) -> PathBuf {
        self.simulator.password_file()
    }

    /// The agent's settings for this BMC: suite 3, two stable readings.
    pub fn agent(&self) -> IpmiAgent {
        IpmiAgent {
            address: "127.0.0.1".to_owned(),
            port: self.port(),
            user: USER.to_owned(),
            password: SecretSource::File(self.password_file()),
            cipher_suite: Some(3),
            privilege: "ADMINISTRATOR".to_owned(),
            stable_reads: 2,
            independent_power: false,
            poll: Span::from_ms(50),
            identity: IdentityCheck::Uuid,
        }
    }

    /// Whether the machine is on, without asking the BMC.
    pub fn is_on(&self) -> bool {
        fs::read_to_string(self.path().join("power")).expect("the power file").trim() == "1"
    }

    /// A hand on the power button: no action runs.
    pub fn set_power(&self, on: bool) {
        self.write("power", if on { "1\n" } else { "0\n" });
    }

    /// What the chassis was asked and told so far, such as `get power` and `set power 0`.
    pub fn calls(&self) -> Vec<String> {
        fs::read_to_string(self.path().join("calls")).expect("the log of calls").lines().map(str::to_owned).collect()
    }

    /// It shows this GUID, 32 hexadecimal digits, from now on.
    pub fn set_guid(&mut self, guid: &str) {
        self.unplug();
        let file = self.path().join("lan.conf");
        let text = fs::read_to_string(&file).expect("the simulator's settings");
        let (head, rest) = text.split_once("guid ").expect("they name a GUID");
        fs::write(&file, format!("{head}guid {guid}{}", &rest[guid.len()..])).expect("a written file");
        self.plug();
    }

    /// The BMC loses its network.
    pub fn unplug(&mut self) {
        self.simulator.unplug();
    }

    /// The BMC answers again.
    pub fn plug(&mut self) {
        self.simulator.plug().expect("ipmi_sim starts again");
    }

    fn write(&self, name: &str, content: &str) {
        fs::write(self.path().join(name), content).expect("a written file");
    }
}

fn home(dir: &Path) -> PathBuf {
    dir.join("bmc")
}

fn chassis(dir: &Path, off: &str, on: &str) -> String {
    format!(
        "#!/bin/sh\ncd {} || exit 1\necho \"$*\" >> calls\ncase \"$*\" in\n\
         *'get power'*) echo power:$(cat power) ;;\n\
         *'set power 0'*) {off} ;;\n\
         *'set power 1'*) {on} ;;\nesac\nexit 0\n",
        dir.display()
    )
}
