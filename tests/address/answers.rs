//! How long it takes until an address answers a neighbour that has learnt it from the other machine.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use super::segment::{Segment, until};
use super::{group, need, up};

struct Ping(Child);

impl Ping {
    /// Pings every 20 ms from now on.
    fn start(lab: &Segment, machine: &str, address: &str) -> Ping {
        let mut command = lab.command(machine, "ping");
        let child = command.args(["-n", "-i", "0.02", address]).stdout(Stdio::piped()).spawn();
        Ping(child.expect("ping runs"))
    }

    fn first_answer(&mut self) -> Instant {
        let lines = BufReader::new(self.0.stdout.take().expect("a pipe")).lines();
        let answered = lines.map_while(Result::ok).find(|line| line.contains("bytes from"));
        answered.expect("an answer");
        Instant::now()
    }
}

impl Drop for Ping {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Machine `a` serves, `c` has learnt where; `a` dies and `b` takes over.
fn take_over(own: [&str; 3], vip: &str, neighbours: &str, more: &str) -> Duration {
    let lab = Segment::new(&["a", "b", "c"]);
    for (machine, address) in ["a", "b", "c"].iter().zip(own) {
        let nodad = if address.contains(':') { " nodad" } else { "" };
        lab.ip(machine, &format!("addr add {address} dev reef0{nodad}"));
    }
    // What it has learnt stays valid for ten minutes: only an announcement corrects it.
    lab.set("c", &format!("{neighbours}/neigh/reef0/base_reachable_time_ms"), "600000");
    let address = vip.split('/').next().expect("an address");
    lab.inside("a", async || up(&group(vip, "probe = false")).await);
    Ping::start(&lab, "c", address).first_answer();
    lab.carrier("a", "down");
    let mut ping = Ping::start(&lab, "c", address);
    std::thread::scope(|scope| {
        let (begun, started) = lab.inside("b", async || {
            let service = group(vip, more);
            let begun = Instant::now();
            up(&service).await;
            let started = begun.elapsed();
            // The announcements go on beside.
            let answered = scope.spawn(|| ping.first_answer());
            until("an answer", || answered.is_finished()).await;
            (answered.join().expect("an answer").duration_since(begun), started)
        });
        println!("{vip} ({more}): up after {started:?}, first answered ping after {begun:?}");
        begun
    })
}

#[test]
fn a_neighbour_with_a_warm_cache_is_answered_soon_after_a_start() {
    let name = "a_neighbour_with_a_warm_cache_is_answered_soon_after_a_start";
    if !need::all(name, &[need::root(), need::program("ip"), need::program("ping")]) {
        return;
    }
    let four = ["192.0.2.11/24", "192.0.2.12/24", "192.0.2.13/24"];
    let six = ["2001:db8::11/64", "2001:db8::12/64", "2001:db8::13/64"];
    for probe in ["probe = true", "probe = false"] {
        assert!(take_over(four, "192.0.2.50/24", "ipv4", probe) < Duration::from_secs(10));
        assert!(take_over(six, "2001:db8::50/64", "ipv6", probe) < Duration::from_secs(20));
    }
}
