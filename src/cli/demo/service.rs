//! `leasehold demo-service`: the service of the demo. It does one thing, and leaves a trace of each time.
//!
//! It checks nothing and trusts whoever started it: what the history shows is the work of the daemons alone.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use anyhow::Context;

use super::history::{Line, Writer};
use crate::cli::args::DemoService;
use crate::cli::exit::Exit;
use crate::os::clock;

/// Short beside everything that the demo measures.
const PACE: Duration = Duration::from_millis(10);

/// Appends until it is killed.
pub fn run(options: &DemoService) -> anyhow::Result<Exit> {
    let token = std::env::var("LEASEHOLD_TOKEN").ok().and_then(|token| token.parse().ok());
    let token = token.context("no token in LEASEHOLD_TOKEN: a resource of kind exec is started with one")?;
    let mut writer = Writer::open(&options.history).with_context(|| options.history.display().to_string())?;
    let pid = std::process::id();
    if let Some(address) = options.listen {
        listen(address, format!("{token} {pid}\n")).with_context(|| address.to_string())?;
    }
    for counter in 1.. {
        let line = Line { token, node: options.node.clone(), pid, counter, boottime_ns: clock::now().0 };
        match writer.append(&line) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => result.context("the history")?,
        }
        std::thread::sleep(PACE);
    }
    Ok(Exit::Fine)
}

/// Every line of every client gets the same answer: by it the client knows who served it.
fn listen(address: SocketAddr, answer: String) -> io::Result<()> {
    let listener = TcpListener::bind(address)?;
    std::thread::Builder::new().name("listen".to_owned()).spawn(move || {
        for client in listener.incoming().flatten() {
            let answer = answer.clone();
            // A client that goes away ends its own thread.
            std::thread::spawn(move || serve(client, &answer));
        }
    })?;
    Ok(())
}

fn serve(client: TcpStream, answer: &str) -> io::Result<()> {
    client.set_nodelay(true)?;
    let asked = BufReader::new(client.try_clone()?).lines();
    asked.map_while(Result::ok).try_for_each(|_| (&client).write_all(answer.as_bytes()))
}
