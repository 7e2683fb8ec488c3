//! A real Redfish service over TLS: sushy-tools, with machines that are processes (see bmc.py).

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use super::certs::Certs;

pub const USER: &str = "admin";
pub const MAIN: &str = "11111111-0000-4000-8000-0000000000b2";
pub const WITNESS: &str = "11111111-0000-4000-8000-0000000000a1";

pub fn python() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("target/venv-redfish/bin/python")
}

/// One emulator. Ends with this value, and so do its machines.
#[derive(Debug)]
pub struct Emulator {
    home: tempfile::TempDir,
    service: Child,
    pub port: u16,
}

impl Emulator {
    /// Serves with `leaf` of these certificates; each name is a machine that runs.
    pub fn start(certs: &Certs, password: &str, machines: &[(&str, &str)]) -> Emulator {
        let home = tempfile::tempdir().expect("a temporary directory");
        let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a free port").port();
        let at = |name: &str| home.path().join(name);
        fs::write(at("htpasswd"), format!("{USER}:{}\n", bcrypt(password))).unwrap();
        fs::write(at("emulator.conf"), settings(certs, home.path(), port, machines)).unwrap();
        machines.iter().for_each(|(name, _)| start_machine(&at(&format!("{name}.pid"))));
        let mut command = Command::new(python());
        command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/redfish/bmc.py"));
        command.arg("--config").arg(at("emulator.conf")).arg("--fake").env("MACHINES", home.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
        let mut service = command.spawn().expect("the emulator starts");
        wait_until_it_listens(&mut service);
        Emulator { home, service, port }
    }

    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    fn pid(&self, machine: &str) -> Option<i32> {
        fs::read_to_string(self.home.path().join(format!("{machine}.pid"))).ok()?.trim().parse().ok()
    }

    /// Whether the machine's process does anything.
    pub fn runs(&self, machine: &str) -> bool {
        let stat = self.pid(machine).and_then(|pid| fs::read_to_string(format!("/proc/{pid}/stat")).ok());
        stat.is_some_and(|stat| !stat.contains(") Z "))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        let machines = fs::read_dir(self.home.path()).into_iter().flatten().flatten();
        let machines = machines.filter_map(|file| file.file_name().to_str()?.strip_suffix(".pid").map(str::to_owned));
        for pid in machines.filter_map(|machine| self.pid(&machine)) {
            let _ = Command::new("kill").args(["-KILL", "--", &format!("-{pid}")]).stderr(Stdio::null()).status();
        }
        let _ = self.service.kill();
        let _ = self.service.wait();
    }
}

fn settings(certs: &Certs, home: &Path, port: u16, machines: &[(&str, &str)]) -> String {
    let systems = machines.iter().map(|(name, uuid)| {
        format!("{{'uuid': '{uuid}', 'name': '{name}', 'power_state': 'On', 'external_notifier': False, 'nics': []}}")
    });
    format!(
        "SUSHY_EMULATOR_LISTEN_IP = '127.0.0.1'\nSUSHY_EMULATOR_LISTEN_PORT = {port}\n\
         SUSHY_EMULATOR_SSL_CERT = '{}'\nSUSHY_EMULATOR_SSL_KEY = '{}'\n\
         SUSHY_EMULATOR_AUTH_FILE = '{home}/htpasswd'\nSUSHY_EMULATOR_STATE_DIR = '{home}'\n\
         SUSHY_EMULATOR_FAKE_DRIVER = True\nSUSHY_EMULATOR_FAKE_SYSTEMS = [{}]\n",
        certs.pem("leaf").display(),
        certs.key_file("leaf").display(),
        systems.collect::<Vec<_>>().join(", "),
        home = home.display(),
    )
}

/// The emulator takes no other kind of password file.
fn bcrypt(password: &str) -> String {
    let program = "import bcrypt, sys; print(bcrypt.hashpw(sys.stdin.buffer.read(), bcrypt.gensalt(4)).decode())";
    let mut child = Command::new(python());
    let mut child = child.args(["-c", program]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), password.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap().trim().to_owned()
}

fn start_machine(pid_file: &Path) {
    let mut machine = Command::new("sleep");
    machine.arg("600").process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut machine = machine.spawn().expect("sleep is everywhere");
    fs::write(pid_file, machine.id().to_string()).unwrap();
    thread::spawn(move || machine.wait());
}

/// Reads on after that, so that the emulator never blocks on a full pipe.
fn wait_until_it_listens(service: &mut Child) {
    let mut lines = BufReader::new(service.stderr.take().expect("stderr is piped")).lines().map_while(Result::ok);
    let mut seen = Vec::new();
    let up = lines.by_ref().any(|line| {
        seen.push(line);
        seen.last().is_some_and(|line| line.contains("Running on"))
    });
    assert!(up, "the emulator did not start:\n{}", seen.join("\n"));
    thread::spawn(move || lines.for_each(drop));
}
