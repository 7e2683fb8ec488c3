//! A real BMC in software: `ipmi_sim` of OpenIPMI on a free port of 127.0.0.1, with a chassis script that tells the truth.
//!
//! The power is a file (`1` or `0`); what "off" and "on" do is a shell snippet of the test, for instance one that kills
//! a process group. Dropping it ends the simulator. It speaks RMCP+ with cipher suite 3 only.
#![allow(dead_code)] // each test program uses another part

use std::fs::{self, OpenOptions, Permissions};
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use leasehold::config::{IpmiAgent, SecretSource};
use leasehold::core::Span;

pub const USER: &str = "admin";
pub const PASSWORD: &str = "s3cret-M4RK";

/// One simulated BMC with the machine behind it.
#[derive(Debug)]
pub struct Bmc {
    dir: tempfile::TempDir,
    port: u16,
    simulator: Option<Child>,
}

impl Bmc {
    /// Whether this machine has the simulator and the client.
    pub fn available() -> bool {
        let found = |p: &str| ["/usr/bin", "/usr/local/bin"].iter().any(|d| Path::new(d).join(p).exists());
        found("ipmi_sim") && found("ipmitool")
    }

    /// A machine that is on, and goes off and on as told.
    pub fn start() -> Bmc {
        Bmc::start_with("echo 0 > power", "echo 1 > power")
    }

    /// A machine that is on. `off` and `on` run in the BMC's directory when the chassis is told so; they have to
    /// write `0` or `1` to the file `power` themselves, when it is true. What they leave running must let go of stdout.
    pub fn start_with(off: &str, on: &str) -> Bmc {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let mut bmc = Bmc { dir, port, simulator: None };
        bmc.write("power", "1\n", 0o600);
        bmc.write("password", &format!("{PASSWORD}\n"), 0o600);
        bmc.write("calls", "", 0o600);
        bmc.write("chassis", &chassis(bmc.path(), off, on), 0o700);
        bmc.write("sim.emu", EMULATION, 0o600);
        bmc.write("lan.conf", &lan(bmc.path(), port), 0o600);
        fs::create_dir(bmc.path().join("state")).expect("a state directory");
        bmc.plug();
        bmc
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn password_file(&self) -> PathBuf {
        self.path().join("password")
    }

    /// The agent's settings for this BMC: suite 3, two stable readings.
    pub fn agent(&self) -> IpmiAgent {
        IpmiAgent {
            address: "127.0.0.1".to_owned(),
            port: self.port,
            user: USER.to_owned(),
            password: SecretSource::File(self.password_file()),
            cipher_suite: Some(3),
            privilege: "ADMINISTRATOR".to_owned(),
            stable_reads: 2,
            poll: Span::from_ms(50),
        }
    }

    /// Whether the machine is on, without asking the BMC.
    pub fn is_on(&self) -> bool {
        fs::read_to_string(self.path().join("power")).expect("the power file").trim() == "1"
    }

    /// A hand on the power button: no action runs.
    pub fn set_power(&self, on: bool) {
        self.write("power", if on { "1\n" } else { "0\n" }, 0o600);
    }

    /// What the chassis was asked and told so far, such as `get power` and `set power 0`.
    pub fn calls(&self) -> Vec<String> {
        fs::read_to_string(self.path().join("calls")).expect("the log of calls").lines().map(str::to_owned).collect()
    }

    /// The BMC loses its network.
    pub fn unplug(&mut self) {
        if let Some(mut child) = self.simulator.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// The BMC answers again.
    pub fn plug(&mut self) {
        let log = fs::File::create(self.path().join("log")).expect("a log file");
        let mut command = Command::new("ipmi_sim");
        command.arg("-n").args(["-c", "lan.conf", "-f", "sim.emu", "-s", "state"]).current_dir(self.path());
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a second handle")).stderr(log);
        self.simulator = Some(command.spawn().expect("ipmi_sim is installed"));
        self.until_listening();
    }

    fn until_listening(&self) {
        let wanted = format!(":{:04X} ", self.port);
        for _ in 0..500 {
            if fs::read_to_string("/proc/net/udp").expect("the table of sockets").contains(&wanted) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("ipmi_sim does not listen: {}", fs::read_to_string(self.path().join("log")).unwrap_or_default());
    }

    fn write(&self, name: &str, content: &str, mode: u32) {
        let path = self.path().join(name);
        let mut options = OpenOptions::new();
        let mut file = options.write(true).create(true).truncate(true).mode(mode).open(&path).expect("a file");
        file.write_all(content.as_bytes()).expect("a written file");
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
    }
}

impl Drop for Bmc {
    fn drop(&mut self) {
        self.unplug();
    }
}

fn free_port() -> u16 {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("an address").port()
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

fn lan(dir: &Path, port: u16) -> String {
    let auth =
        ["callback", "user", "operator", "admin"].map(|l| format!("    allowed_auths_{l} none md2 md5 straight\n"));
    format!(
        "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n{}    \
         guid b123456789abcdefa123456789abcdef\n  endlan\n  chassis_control \"{}/chassis\"\n  \
         user 1 true \"\" \"test\" user 10 none md2 md5 straight\n  \
         user 2 true \"{USER}\" \"{PASSWORD}\" admin 10 none md2 md5 straight\n",
        auth.concat(),
        dir.display()
    )
}

const EMULATION: &str = "mc_setbmc 0x20\n\
    mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
    sel_enable 0x20 1000 0x0a\n\
    mc_enable 0x20\n";
