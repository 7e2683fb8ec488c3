//! Resources of kind `address` on real interfaces, in network namespaces of their own (casebook C23, C25, C26).

#[path = "address/answers.rs"]
mod answers;
#[path = "address/daemons.rs"]
mod daemons;
#[path = "common/need.rs"]
mod need;
#[path = "common/segment.rs"]
mod segment;

use std::time::Duration;

use leasehold::config::{self, Resource};
use leasehold::core::{ProofKind, Role, Token};
use leasehold::resource::{Context, Failure, Group};
use segment::{PATIENCE, Segment, until};
use tokio::time::timeout;

const VIP: &str = "192.0.2.50";
const VIP6: &str = "2001:db8::50";

/// Without root there is no namespace, and nothing to test.
fn possible(test: &str) -> bool {
    need::all(test, &[need::root(), need::program("ip")])
}

/// The resources of a file with these tables, checked as every file is.
fn resources(tables: &[String]) -> Vec<Resource> {
    let base = "fence = \"confirm-only\"\n[cluster]\nname = \"estuary\"\nkey = \"/etc/leasehold/key\"\ndata = \"shared\"\n\
                [[node]]\nname = \"heron\"\n[[node]]\nname = \"plover\"\n[[link]]\nname = \"lan\"\n\
                addresses = { heron = \"198.51.100.1\", plover = \"198.51.100.2\" }\n[guard]\nprocess = \"none\"\nwatchdog = \"none\"\n";
    let text = format!("{base}{}", tables.concat());
    config::parse("leasehold.toml", &text).unwrap_or_else(|wrong| panic!("{wrong}")).config.resources
}

fn table(name: &str, address: &str, more: &str) -> String {
    format!(
        "[[resource]]\nname = \"{name}\"\nkind = \"address\"\naddress = \"{address}\"\ninterface = \"reef0\"\n{more}\n"
    )
}

/// One address as the group of node heron.
fn group(address: &str, more: &str) -> Group {
    Group::new(&resources(&[table("reef", address, more)]), "heron", "test")
}

fn context() -> Context {
    let reason = "the peer was fenced".to_owned();
    Context { token: Token(7), role: Role::Primary, reason, proof: Some(ProofKind::Fenced) }
}

async fn up(group: &Group) {
    group.start(&context(), &|| true).await.expect("a start");
}

async fn refused(group: &Group) -> String {
    group.start(&context(), &|| true).await.expect_err("no start").to_string()
}

async fn down(group: &Group) {
    let stopped = timeout(PATIENCE, group.stop(&context())).await.expect("an end");
    assert!(stopped.is_stopped(), "{stopped:?}");
    assert!(group.is_stopped().await.expect("a list"));
}

async fn failure(group: &Group) -> Failure {
    timeout(PATIENCE, group.failed()).await.expect("a failure")
}

async fn no_failure(group: &Group) {
    let quiet = timeout(Duration::from_millis(300), group.failed()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

// --- C23: one address takes its neighbours along

#[test]
fn an_address_that_was_first_in_its_subnet_goes_alone() {
    if !possible("an_address_that_was_first_in_its_subnet_goes_alone") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.set("a", "ipv4/conf/reef0/promote_secondaries", "0");
    lab.inside("a", async || {
        let (first, second) = (group("192.0.2.50/24", "probe = false"), group("192.0.2.51/24", "probe = false"));
        up(&first).await;
        assert!(lab.ip("a", "route show").contains("192.0.2.0/24 dev reef0"), "a way into its subnet");
        lab.ip("a", "addr add 192.0.2.10/24 dev reef0");
        lab.ip("a", "route add default via 192.0.2.1");
        up(&second).await;
        down(&first).await;
        assert_eq!(lab.addresses("a"), ["192.0.2.10/24", "192.0.2.51/32"]);
        let routes = lab.ip("a", "route show");
        assert!(routes.contains("default via 192.0.2.1") && routes.contains("192.0.2.0/24 dev reef0"), "{routes}");
        assert!(!routes.contains("src 192.0.2.50"), "{routes}");
        down(&second).await;
        assert_eq!(lab.addresses("a"), ["192.0.2.10/24"]);
    });
}

#[test]
fn the_way_into_the_subnet_survives_the_address_that_brought_it() {
    if !possible("the_way_into_the_subnet_survives_the_address_that_brought_it") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        let (first, second) =
            (group("192.0.2.50/24", "probe = false"), group("192.0.2.51/24", "probe = false\nmonitor = \"60s\""));
        up(&first).await;
        up(&second).await;
        down(&first).await;
        until("the second brings the route back", || lab.ip("a", "route show").contains("192.0.2.0/24")).await;
        down(&second).await;
        assert_eq!(lab.ip("a", "route show"), "");
    });
}

/// As somebody else adds it, and as an older daemon may have left it.
fn foreign(lab: &Segment) {
    lab.ip("a", "addr add 192.0.2.50/24 dev reef0");
    lab.ip("a", "addr add 192.0.2.10/24 dev reef0");
    lab.ip("a", "addr add 192.0.2.51/24 dev reef0");
    lab.ip("a", "route add default via 192.0.2.1");
    lab.ip("a", "route add 203.0.113.0/24 via 192.0.2.1 src 192.0.2.10");
}

async fn removed_alone(lab: &Segment) {
    let before = lab.ip("a", "route show");
    down(&group("192.0.2.50/24", "")).await;
    assert_eq!(lab.addresses("a"), ["192.0.2.10/24", "192.0.2.51/24"]);
    let after = lab.ip("a", "route show");
    for route in ["default via 192.0.2.1", "203.0.113.0/24 via 192.0.2.1", "192.0.2.0/24 dev reef0"] {
        assert!(before.contains(route) && after.contains(route), "{route} is missing:\n{before}\n{after}");
    }
}

#[test]
fn a_left_over_with_secondaries_goes_alone_and_the_setting_stays_as_it_was() {
    if !possible("a_left_over_with_secondaries_goes_alone_and_the_setting_stays_as_it_was") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.set("a", "ipv4/conf/all/promote_secondaries", "0");
    lab.set("a", "ipv4/conf/reef0/promote_secondaries", "0");
    foreign(&lab);
    lab.inside("a", async || removed_alone(&lab).await);
    let setting = lab.command("a", "cat").arg("/proc/sys/net/ipv4/conf/reef0/promote_secondaries").output();
    assert_eq!(setting.expect("cat runs").stdout, b"0\n");
}

const INSIDE: &str = "LEASEHOLD_TEST_READ_ONLY";

/// Under a unit that protects the kernel's settings nobody can be promoted: what went along is put back.
#[test]
fn where_nothing_can_be_set_the_secondaries_are_put_back_with_their_routes() {
    const NAME: &str = "where_nothing_can_be_set_the_secondaries_are_put_back_with_their_routes";
    if std::env::var_os(INSIDE).is_some() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(down(&group("192.0.2.50/24", "")));
        return;
    }
    if !possible(NAME) {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.set("a", "ipv4/conf/all/promote_secondaries", "0");
    lab.set("a", "ipv4/conf/reef0/promote_secondaries", "0");
    foreign(&lab);
    let script = "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec \"$0\" \"$@\"";
    let exe = std::env::current_exe().expect("the test's own program");
    let mut command = lab.command("a", "unshare");
    command.args(["--mount", "sh", "-c", script]).arg(exe).args(["--exact", NAME, "--nocapture"]).env(INSIDE, "1");
    let output = command.output().expect("unshare runs");
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    assert!(!lab.has("a", VIP), "it was removed");
    lab.inside("a", async || {
        assert_eq!(lab.addresses("a"), ["192.0.2.10/24", "192.0.2.51/24"]);
        let routes = lab.ip("a", "route show");
        for route in ["default via 192.0.2.1", "203.0.113.0/24 via 192.0.2.1", "192.0.2.0/24 dev reef0"] {
            assert!(routes.contains(route), "{route} is missing:\n{routes}");
        }
    });
}

#[test]
fn an_ipv6_address_goes_alone_and_begins_nothing_by_itself() {
    if !possible("an_ipv6_address_goes_alone_and_begins_nothing_by_itself") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        let vip = group("2001:db8::50/64", "probe = false");
        up(&vip).await;
        lab.ip("a", "addr add 2001:db8::10/64 dev reef0 nodad");
        let route = lab.ip("a", "route get 2001:db8::99");
        assert!(route.contains("src 2001:db8::10"), "the node's own address speaks first: {route}");
        down(&vip).await;
        assert_eq!(lab.addresses("a"), ["2001:db8::10/64"]);
        assert!(lab.ip("a", "-6 route show").contains("2001:db8::/64 dev reef0"));
    });
}

// --- duplicates

#[test]
fn an_address_that_another_machine_has_is_refused_and_its_owner_named() {
    if !possible("an_address_that_another_machine_has_is_refused_and_its_owner_named") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    lab.ip("b", "addr add 192.0.2.50/24 dev reef0");
    lab.ip("b", "addr add 2001:db8::50/64 dev reef0 nodad");
    let owner = lab.hardware("b");
    lab.inside("a", async || {
        let told = refused(&group("192.0.2.50/24", "start_timeout = \"1s\"")).await;
        assert!(told.contains("192.0.2.50 is in use") && told.contains(&owner), "{told}");
        let told = refused(&group("2001:db8::50/64", "start_timeout = \"3s\"")).await;
        assert!(told.contains("2001:db8::50 is in use"), "{told}");
    });
    let left = lab.ip("a", "-o addr show dev reef0 scope global");
    assert!(!left.contains(VIP) && (!left.contains(VIP6) || left.contains("tentative")), "{left}");
    lab.inside("a", async || down(&group("2001:db8::50/64", "")).await);
    assert!(lab.addresses("a").is_empty());
}

#[test]
fn a_rival_that_lets_go_in_time_holds_nothing_up() {
    if !possible("a_rival_that_lets_go_in_time_holds_nothing_up") {
        return;
    }
    let lab = Segment::new(&["a", "b"]);
    lab.ip("b", "addr add 192.0.2.50/24 dev reef0");
    lab.inside("a", async || {
        let vip = group("192.0.2.50/24", "start_timeout = \"50s\"");
        let lets_go = async {
            tokio::time::sleep(Duration::from_millis(600)).await;
            assert!(!lab.has("a", VIP), "not while the other one has it");
            lab.ip("b", "addr del 192.0.2.50/24 dev reef0");
        };
        tokio::join!(up(&vip), lets_go);
        assert!(lab.has("a", VIP));
    });
}

// --- C25: the network manager tidies up

#[test]
fn a_removed_address_is_put_back_by_event_and_told() {
    if !possible("a_removed_address_is_put_back_by_event_and_told") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        // The next look is a minute away: only the event can tell in time.
        let vip = group("192.0.2.50/24", "probe = false\nmonitor = \"60s\"");
        up(&vip).await;
        for round in 0..2 {
            tokio::time::sleep(Duration::from_millis(50)).await;
            lab.ip("a", "addr del 192.0.2.50/32 dev reef0");
            let took = until("it is put back", || lab.has("a", VIP)).await;
            println!("put back after {took:?} (round {round})");
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
        until("the count is told", || !vip.progress().is_empty()).await;
        let told = vip.progress();
        assert!(told[0].1.text.contains("put back, 2 times"), "{told:?}");
        no_failure(&vip).await;
        down(&vip).await;
        assert!(!lab.has("a", VIP), "a stop is no removal to be mended");
    });
}

#[test]
fn a_duel_with_another_program_ends_as_a_failure() {
    if !possible("a_duel_with_another_program_ends_as_a_failure") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        let vip = group("192.0.2.50/24", "probe = false\nput_back = 5");
        up(&vip).await;
        for _ in 0..5 {
            lab.ip("a", "addr del 192.0.2.50/32 dev reef0");
            until("it is put back", || lab.has("a", VIP)).await;
        }
        lab.ip("a", "addr del 192.0.2.50/32 dev reef0");
        let failure = failure(&vip).await;
        assert!(failure.what.contains("6 times within"), "{}", failure.what);
        down(&vip).await;
    });
}

#[test]
fn an_interface_that_is_switched_off_and_on_gets_its_addresses_and_routes_back() {
    if !possible("an_interface_that_is_switched_off_and_on_gets_its_addresses_and_routes_back") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        let more = "probe = false\nhold = \"60s\"";
        let tables = [table("four", "192.0.2.50/24", more), table("six", "2001:db8::50/64", more)];
        let both = Group::new(&resources(&tables), "heron", "test");
        up(&both).await;
        lab.ip("a", "link set reef0 down");
        until("the kernel removes the IPv6 address", || !lab.has("a", VIP6)).await;
        tokio::time::sleep(Duration::from_millis(100)).await;
        lab.ip("a", "link set reef0 up");
        until("the IPv6 address is back", || lab.has("a", VIP6)).await;
        until("the route is back", || lab.ip("a", "route show").contains("192.0.2.0/24 dev reef0")).await;
        no_failure(&both).await;
        assert!(both.progress().is_empty(), "nobody removed anything: {:?}", both.progress());
        down(&both).await;
    });
}

// --- C26: no carrier, no interface, another name

#[test]
fn a_lost_carrier_is_a_failure_after_the_hold_time_and_a_start_without_one_is_refused() {
    if !possible("a_lost_carrier_is_a_failure_after_the_hold_time_and_a_start_without_one_is_refused") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        let vip = group("192.0.2.50/24", "probe = false\nhold = \"400ms\"\nmonitor = \"100ms\"");
        vip.readiness().await.expect("it could run here");
        up(&vip).await;
        lab.carrier("a", "down");
        let failure = failure(&vip).await;
        assert!(failure.what.contains("reef0 has no carrier"), "{}", failure.what);
        down(&vip).await;
        let told = refused(&vip).await;
        assert!(told.contains("reef0 has no carrier"), "{told}");
        let told = vip.readiness().await.expect_err("not ready").to_string();
        assert!(told.contains("reef0 has no carrier"), "{told}");
        lab.carrier("a", "up");
        until("the carrier is back", || lab.is_in_use("a")).await;
        let told = vip.readiness().await.expect_err("not yet steady").to_string();
        assert!(told.contains("lost its carrier a moment ago"), "{told}");
        vip.readiness().await.expect("steady since the last look");
    });
}

#[test]
fn a_start_right_after_the_cable_was_plugged_in_waits_until_the_link_is_in_use() {
    if !possible("a_start_right_after_the_cable_was_plugged_in_waits_until_the_link_is_in_use") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        lab.unplug("a");
        lab.plug_in("a");
        up(&group("192.0.2.50/24", "probe = false")).await;
        assert!(lab.is_in_use("a"), "an announcement before that reaches nobody");
    });
}

#[test]
fn a_flapping_carrier_is_one_failure() {
    if !possible("a_flapping_carrier_is_one_failure") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        let vip = group("192.0.2.50/24", "probe = false\nhold = \"1s\"\nmonitor = \"100ms\"");
        up(&vip).await;
        let flap = async {
            loop {
                for state in ["down", "up"] {
                    lab.carrier("a", state);
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
            }
        };
        let failure = tokio::select! {
            failure = failure(&vip) => failure,
            () = flap => unreachable!("it flaps for ever"),
        };
        assert!(failure.what.contains("not steady for"), "{}", failure.what);
        down(&vip).await;
        no_failure(&vip).await;
    });
}

#[test]
fn an_interface_that_is_deleted_and_made_again_gets_its_address_back() {
    if !possible("an_interface_that_is_deleted_and_made_again_gets_its_address_back") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.inside("a", async || {
        let vip = group("192.0.2.50/24", "probe = false\nhold = \"60s\"");
        up(&vip).await;
        lab.unplug("a");
        until("the interface is gone", || !lab.ip("a", "-o link show").contains("reef0")).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        lab.plug_in("a");
        until("the address is back", || lab.has("a", VIP)).await;
        no_failure(&vip).await;
        lab.unplug("a");
        down(&vip).await;
    });
}

#[test]
fn an_interface_of_another_name_is_told_with_what_there_is() {
    if !possible("an_interface_of_another_name_is_told_with_what_there_is") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.ip("a", "addr add 192.0.2.10/24 dev reef0");
    lab.inside("a", async || {
        let text = "[[resource]]\nname = \"reef\"\nkind = \"address\"\naddress = \"192.0.2.50/24\"\n\
                    interface = { heron = \"eth2\", plover = \"reef0\" }\n";
        let of = |node| Group::new(&resources(&[text.to_owned()]), node, "test");
        for told in [of("heron").readiness().await.expect_err("not ready").to_string(), refused(&of("heron")).await] {
            assert!(told.contains("there is no interface eth2 here"), "{told}");
            assert!(told.contains("reef0 (carrier, in the subnet of 192.0.2.50/24)"), "{told}");
        }
        down(&of("heron")).await;
        of("plover").readiness().await.expect("each node has its own");
    });
}

#[test]
fn a_left_over_on_any_interface_counts_and_is_removed() {
    if !possible("a_left_over_on_any_interface_counts_and_is_removed") {
        return;
    }
    let lab = Segment::new(&["a"]);
    lab.ip("a", "link add other0 type bridge");
    lab.ip("a", "addr add 192.0.2.50/24 dev other0");
    lab.inside("a", async || {
        let vip = group("192.0.2.50/24", "probe = false");
        assert!(!vip.is_stopped().await.expect("a list"));
        assert!(!vip.adopt(&context()).await.expect("a list").is_empty(), "not there where it belongs");
        up(&vip).await;
        assert!(!lab.ip("a", "-o addr show dev other0").contains(VIP));
        // One that still watched would put back what the next one removes.
        drop(vip);
        let next = group("192.0.2.50/24", "");
        assert!(next.adopt(&context()).await.expect("a list").is_empty(), "the next daemon takes it over");
        down(&next).await;
    });
}
