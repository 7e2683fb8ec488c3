//! A real BMC in software: `ipmi_sim` of OpenIPMI, spoken to by `ipmitool` over RMCP+, cipher suite 3 only.
//!
//! In the demo its chassis is `leasehold demo-bmc`, so that power off is real and power readings are true. The tests of
//! the IPMI agent give it chassis of their own.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::Write;
use std::net::UdpSocket;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};

use super::world::quoted;

pub const PROGRAMS: [&str; 2] = ["ipmi_sim", "ipmitool"];
pub const USER: &str = "admin";
/// It starts in some ten milliseconds; a loaded machine takes longer.
const START_LOOK: Duration = Duration::from_millis(10);
const START_LOOKS: u32 = 1000;

/// One BMC.
#[derive(Debug)]
pub struct Simulator {
    home: PathBuf,
    port: u16,
    child: Option<Child>,
}

/// Those of the programs that this machine lacks.
pub fn missing() -> Vec<&'static str> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &&str| std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    PROGRAMS.into_iter().filter(|name| !found(name)).collect()
}

impl Simulator {
    /// Makes the directory `home` with its files, and starts it. `chassis` is a script; it gets `get power` and prints
    /// `power:0` or `power:1`, or gets `set power 0`.
    ///
    /// # Errors
    /// The programs are not installed, or it does not listen.
    pub fn start(home: &Path, password: &str, chassis: &str) -> anyhow::Result<Simulator> {
        DirBuilder::new().mode(0o700).create(home)?;
        DirBuilder::new().mode(0o700).create(home.join("state"))?;
        let port = UdpSocket::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut simulator = Simulator { home: home.to_owned(), port, child: None };
        simulator.write("password", 0o600, &format!("{password}\n"))?;
        simulator.write("chassis", 0o700, chassis)?;
        simulator.write("sim.emu", 0o600, EMULATION)?;
        simulator.write("lan.conf", 0o600, &lan(home, port, password))?;
        simulator.plug()?;
        Ok(simulator)
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// The agent's part of the configuration. Both machines of the demo are this one, so that a UUID tells nothing.
    pub fn agent(&self) -> String {
        format!(
            "kind = \"ipmi\"\naddress = \"127.0.0.1\"\nport = {}\nuser = \"{USER}\"\npassword_file = {}\n\
             cipher_suite = 3\npoll = \"100ms\"\npower = \"independent\"\nidentity = \"none\"\n\n",
            self.port,
            quoted(&self.password_file())
        )
    }

    /// What the fence agent reads its password from.
    pub fn password_file(&self) -> PathBuf {
        self.home.join("password")
    }

    /// The BMC loses its network.
    pub fn unplug(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// It answers (again).
    ///
    /// # Errors
    /// `ipmi_sim` is not installed, or does not listen.
    pub fn plug(&mut self) -> anyhow::Result<()> {
        let log = File::create(self.home.join("log"))?;
        let mut command = Command::new(PROGRAMS[0]);
        command.args(["-n", "-c", "lan.conf", "-f", "sim.emu", "-s", "state"]).current_dir(&self.home).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().context("starting ipmi_sim")?);
        self.until_listening()
    }

    /// It tells nobody when it is ready: only the kernel's table of sockets shows it, that of this thread's network.
    fn until_listening(&self) -> anyhow::Result<()> {
        let wanted = format!(":{:04X} ", self.port);
        for _ in 0..START_LOOKS {
            if fs::read_to_string("/proc/thread-self/net/udp")?.contains(&wanted) {
                return Ok(());
            }
            std::thread::sleep(START_LOOK);
        }
        bail!("ipmi_sim does not listen: {}", fs::read_to_string(self.home.join("log")).unwrap_or_default().trim())
    }

    fn write(&self, name: &str, mode: u32, text: &str) -> anyhow::Result<()> {
        let path = self.home.join(name);
        let file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).with_context(|| path.display().to_string())
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.unplug();
    }
}

/// The chassis of a machine of the demo.
pub fn chassis(program: &Path, world: &Path, node: &str) -> String {
    let bmc = format!("{} demo-bmc --node {node} --directory {}", shell_word(program), shell_word(world));
    format!(
        "#!/bin/sh\ncase \"$*\" in\n\
         *'get power'*) if {bmc} status >/dev/null; then echo power:1; else echo power:0; fi ;;\n\
         *'set power 0'*) {bmc} off ;;\n\
         *'set power 1'*) {bmc} on ;;\nesac\nexit 0\n"
    )
}

/// A path as one word of a shell.
fn shell_word(path: &Path) -> String {
    format!("'{}'", path.to_string_lossy().replace('\'', "'\\''"))
}

fn lan(home: &Path, port: u16, password: &str) -> String {
    let levels = ["callback", "user", "operator", "admin"];
    let levels = levels.map(|level| format!("    allowed_auths_{level} none md2 md5 straight\n")).concat();
    format!(
        "name \"bmc\"\nset_working_mc 0x20\n  startlan 1\n    addr 127.0.0.1 {port}\n    priv_limit admin\n{levels}    \
         guid b123456789abcdefa123456789abcdef\n  endlan\n  chassis_control \"{}/chassis\"\n  \
         user 1 true \"\" \"test\" user 10 none md2 md5 straight\n  \
         user 2 true \"{USER}\" \"{password}\" admin 10 none md2 md5 straight\n",
        home.display()
    )
}

const EMULATION: &str = "mc_setbmc 0x20\n\
    mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr\n\
    sel_enable 0x20 1000 0x0a\n\
    mc_enable 0x20\n";
