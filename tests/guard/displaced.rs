//! A machine that is not where, or when, it believes to be: its primary stops, whatever its lease says.

use std::fs;
use std::path::Path;
use std::process::Command;

use leasehold::cli::demo::pair::{Pair, What};
use leasehold::cli::demo::world::{BOTH, Fencing, Timing};
use leasehold::core::NodeId;
use rustix::net::netlink::{KOBJECT_UEVENT, SocketAddrNetlink};
use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType, sendto, socket_with};

use super::{last_write, need, pairs, until};

const INSIDE: &str = "LEASEHOLD_TEST_INSIDE";
const FAKETIME: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketime.so.1";

/// Runs a test of this file again in a network of its own, whose kernel events reach nobody else. True inside.
fn apart(test: &str, with: &[(&str, &str)]) -> bool {
    if std::env::var_os(INSIDE).is_some() {
        return true;
    }
    let mut again = Command::new("unshare");
    again.args(["--net", "sh", "-c", "ip link set lo up && exec \"$0\" \"$@\""]).arg(std::env::current_exe().unwrap());
    again.args(["--exact", &format!("displaced::{test}"), "--nocapture"]).env(INSIDE, "1").envs(with.iter().copied());
    let output = again.output().unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

/// As the kernel's driver tells it. The kernel passes on what a privileged process hands in (`uevent_net_rcv`).
fn send_new_generation_id() {
    let body = b"change@/devices/LNXSYSTM:00/QEMUVGID:00\0ACTION=change\0SUBSYSTEM=acpi\0NEW_VMGENID=1\0";
    let length = u32::try_from(16 + body.len()).unwrap();
    // `struct nlmsghdr`: a request of the first kind that is not netlink's own, without number or sender.
    let kind_and_flags = [0x10_u16, 1].map(u16::to_ne_bytes).concat();
    let message = [&length.to_ne_bytes(), &*kind_and_flags, &[0; 8], body].concat();
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, Some(KOBJECT_UEVENT)).unwrap();
    sendto(&socket, &message, SendFlags::empty(), &SocketAddrNetlink::new(0, 0)).unwrap();
}

/// Waits until the primary says why it stops, and until the pair is whole again.
fn stops_because(pair: &mut Pair, primary: NodeId, why: &str) {
    pairs::until(pair, why, primary, |what| match what {
        What::Decided(decision) if decision.text.contains(why) => Some(()),
        _ => None,
    });
    pairs::until_whole(pair);
}

#[test]
fn a_primary_whose_virtual_machine_was_restored_stops_at_once() {
    let test = "a_primary_whose_virtual_machine_was_restored_stops_at_once";
    if !need::all(test, &[need::root(), need::program("ip")]) || !apart(test, &[]) {
        return;
    }
    let mut pair = pairs::build(pairs::plan(Timing::SHORT, Fencing::StandIn));
    let primary = pairs::start(&mut pair);
    send_new_generation_id();
    stops_because(&mut pair, primary, "this virtual machine was restored, copied or moved");
    pairs::judged(&pair).unwrap();
}

#[test]
fn a_wall_clock_that_jumps_forward_stops_a_primary_that_was_told_to_mind_it() {
    let test = "a_wall_clock_that_jumps_forward_stops_a_primary_that_was_told_to_mind_it";
    if !need::all(test, &[need::root(), need::program("ip"), need::file(FAKETIME)]) {
        return;
    }
    let clock = tempfile::NamedTempFile::new().unwrap();
    fs::write(clock.path(), "+0\n").unwrap();
    let fake = [
        ("LD_PRELOAD", FAKETIME),
        ("FAKETIME_DONT_FAKE_MONOTONIC", "1"),
        ("FAKETIME_NO_CACHE", "1"),
        ("FAKETIME_TIMESTAMP_FILE", clock.path().to_str().unwrap()),
    ];
    if !apart(test, &fake) {
        return;
    }
    let clock = std::env::var("FAKETIME_TIMESTAMP_FILE").unwrap();
    let mut pair = pairs::build(pairs::plan(Timing::SHORT, Fencing::StandIn));
    BOTH.into_iter().for_each(|node| mind_the_wall(&pair.world.home(node).join("leasehold.toml")));
    let primary = pairs::start(&mut pair);
    let token = pairs::until_written(&mut pair, primary, 0);
    step(Path::new(&clock), "-5h\n");
    let before = last_write(&pair, primary);
    until("the service goes on, whose clock was set back", || last_write(&pair, primary) > before);
    assert_eq!(pairs::until_written(&mut pair, primary, 0), token, "no failover");
    step(Path::new(&clock), "+2h\n");
    stops_because(&mut pair, primary, "the wall clock jumped forward");
    pairs::judged(&pair).unwrap();
}

/// In one piece: a clock that is read from half a file would jump by itself.
fn step(clock: &Path, to: &str) {
    let next = clock.with_extension("next");
    fs::write(&next, to).unwrap();
    fs::rename(next, clock).unwrap();
}

fn mind_the_wall(file: &Path) {
    let text = fs::read_to_string(file).unwrap();
    let with = text.replace("[lease]\n", "[lease]\nwall_check = true\n");
    assert_ne!(with, text);
    fs::write(file, with).unwrap();
}
