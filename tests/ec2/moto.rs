//! moto, as a server of its own, furnished by `furnish.py`; from then on it checks signatures and policies.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// A server with two instances and a volume.
pub struct Moto {
    server: Child,
    pub url: String,
    pub key: String,
    pub secret: String,
    pub instances: [String; 2],
    pub volume: String,
}

impl Moto {
    /// `None` where the venv cannot be made.
    pub fn venv() -> Option<PathBuf> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ec2/venv.sh");
        let made = Command::new(script).stderr(Stdio::inherit()).output().ok()?;
        made.status.success().then(|| String::from_utf8(made.stdout).unwrap().trim().into())
    }

    pub fn start(venv: &Path, allowed: &str) -> Moto {
        let (server, url) = serve(venv, &[]);
        let made = Command::new(venv.join("bin/python"))
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/ec2/furnish.py"))
            .args([&url, allowed])
            .stderr(Stdio::inherit())
            .output()
            .unwrap();
        let text = String::from_utf8(made.stdout).unwrap();
        let words: Vec<_> = text.split_whitespace().map(str::to_owned).collect();
        let [key, secret, first, second, volume] = words.try_into().expect("furnish.py prints five words");
        Moto { server, url, key, secret, instances: [first, second], volume }
    }

    /// With TLS and a certificate that nobody knows; not furnished.
    pub fn tls(venv: &Path) -> Moto {
        let (server, url) = serve(venv, &["-s"]);
        let none = String::new;
        Moto { server, url, key: none(), secret: none(), instances: [none(), none()], volume: none() }
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Starts it on a port of the kernel's choice, and waits until it names it.
fn serve(venv: &Path, options: &[&str]) -> (Child, String) {
    let mut server = Command::new(venv.join("bin/moto_server"))
        .args(["-H", "127.0.0.1", "-p", "0"])
        .args(options)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = server.stderr.take().unwrap();
    let (told, url) = mpsc::channel();
    // Reads on to the end, so that the server never waits for somebody to read its log.
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if let Some((_, url)) = line.split_once("Running on ") {
                let _ = told.send(url.split_whitespace().next().unwrap_or_default().to_owned());
            }
        }
    });
    // It is up within a second or two; under load it may take long.
    let url = url.recv_timeout(Duration::from_secs(60)).expect("moto names its port");
    (server, url)
}
