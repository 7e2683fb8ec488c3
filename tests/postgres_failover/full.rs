//! Both nodes' disks are full (casebook C31 B).

use std::time::Duration;

use leasehold::control::{ResourceState, Role};
use leasehold::core::Span;
use leasehold::os::clock;

use crate::available;
use crate::pg::NAMES;
use crate::site::Site;

/// Below a segment of the usual size, and enough for the few rows of a test.
const LEFT: u64 = 4 << 20;

fn begin() -> (Site, usize) {
    let mut site = Site::build("preferred");
    NAMES.iter().for_each(|node| site.lab.on_own_disk(node, &["-t", "tmpfs", "-o", "size=256m", "tmpfs"]));
    site.switch_on();
    let primary = site.until_whole("the pair is whole");
    site.lab.sql(NAMES[primary], "create table kept (number int)").unwrap();
    (site, primary)
}

fn path(site: &Site, index: usize) -> String {
    site.lab.data(NAMES[index]).display().to_string()
}

fn not_ready(site: &Site, index: usize) -> String {
    site.machines[index].status().and_then(|status| status.me.not_ready).unwrap_or_default()
}

fn state(site: &Site, index: usize) -> Option<ResourceState> {
    let status = site.machines[index].status()?;
    status.resources.into_iter().find(|resource| resource.name == "db").map(|resource| resource.state)
}

/// First the standby's, as one that is full already helps nobody; then the primary's, which stays.
fn both_full(site: &mut Site, primary: usize) {
    site.lab.fill(NAMES[1 - primary], LEFT);
    site.until("the standby says that it is full", |site| not_ready(site, 1 - primary).contains("the disk is full"));
    let told = not_ready(site, 1 - primary);
    assert!(told.contains(&path(site, 1 - primary)), "{told}");
    let knows = |site: &Site| Some(site.machines[primary].status()?.peer.said?.ready);
    site.until("the primary knows", |site| knows(site) == Some(false));
    site.lab.fill(NAMES[primary], LEFT);
    site.until("the primary says why it stays", |site| {
        site.machines[primary].first_finding().contains("the other node could not serve either")
    });
}

#[test]
fn a_primary_whose_disk_is_full_stays_where_the_standbys_is_full_too_and_moves_when_that_has_room() {
    if !available("a_primary_whose_disk_is_full_stays_where_the_standbys_is_full_too_and_moves_when_that_has_room") {
        return;
    }
    let (mut site, primary) = begin();
    let token = site.token(primary);
    both_full(&mut site, primary);
    let told = site.machines[primary].first_finding();
    println!("{told}\n{}", site.machines[1 - primary].first_finding());
    assert!(told.contains("the disk is full") && told.contains(&path(&site, primary)), "{told}");
    let log = site.machines[primary].log();
    let line = log.lines().find(|line| line.contains("it stays here")).expect("it is logged");
    assert!(line.contains("the disk is full") && line.contains(&path(&site, primary)), "{line}");

    let begun = clock::now();
    let mut number = 0;
    while clock::now().since(begun) < Span::from_secs(6) {
        number += 1;
        let stays = site.machines[primary].status().expect("it answers");
        assert_eq!((stays.me.role, stays.me.token), (Role::Primary, token));
        assert!(site.has_address(primary) && !site.has_address(1 - primary));
        site.lab.sql(NAMES[primary], &format!("insert into kept values ({number})")).expect("it serves");
        std::thread::sleep(Duration::from_millis(200));
    }

    site.lab.make_room(NAMES[primary]);
    site.until("it is well again", |site| state(site, primary) == Some(ResourceState::Up));
    assert_eq!(site.token(primary), token, "and was never stopped");

    site.lab.fill(NAMES[primary], LEFT);
    site.until("it stays again", |site| site.machines[primary].first_finding().contains("it stays here"));
    site.lab.make_room(NAMES[1 - primary]);
    site.until("the other node serves", |site| site.token(1 - primary) > token && site.has_address(1 - primary));
    assert!(!site.has_address(primary), "one holder of the address");
    let kept = site.lab.sql(NAMES[1 - primary], "select count(*) from kept");
    assert_eq!(kept, Ok(number.to_string()), "a planned move loses nothing");
    site.until("the other one says why it is no standby", |site| not_ready(site, primary).contains("the disk is full"));
    let moved = site.token(1 - primary);
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(site.token(1 - primary), moved, "it moves once");
}

/// The server ends, as it does when nothing at all can be written any more.
#[test]
fn after_a_crash_on_two_full_disks_nothing_moves_and_room_on_the_old_primary_brings_the_service_back() {
    if !available("after_a_crash_on_two_full_disks_nothing_moves_and_room_on_the_old_primary_brings_the_service_back") {
        return;
    }
    let (mut site, primary) = begin();
    let token = site.token(primary);
    both_full(&mut site, primary);
    site.lab.kill_all(NAMES[primary]);
    site.until("it serves no more", |site| !site.has_address(primary));
    let begun = clock::now();
    while clock::now().since(begun) < Span::from_secs(6) {
        assert!(!site.has_address(primary) && !site.has_address(1 - primary), "nobody could serve");
        assert_eq!(site.token(1 - primary), None, "the other node is no better off, and is left alone");
        std::thread::sleep(Duration::from_millis(100));
    }
    for index in [primary, 1 - primary] {
        site.until("each says that it is full", |site| not_ready(site, index).contains("the disk is full"));
        assert!(not_ready(&site, index).contains(&path(&site, index)));
    }
    println!("{}", site.machines[primary].last_lines());
    site.lab.make_room(NAMES[primary]);
    site.until("the service is back", |site| site.has_address(primary) || site.has_address(1 - primary));
    assert!(site.has_address(primary) && site.token(primary) >= token, "where the room is");
}
