//! What a kernel NFS server may still have open for a fenced node (casebook C20, C22): each is no proof, with its words.

use std::fs;

use leasehold::gate::protocol::{State, Verdict};

use super::standin::{ANSWERS, CLIENTS, GATE, Server};

const OTHER: &str = "/srv/estuary data|198.51.100.9|rw,sync\n";

/// heron is in; plover takes, after `change`.
fn plover_takes(change: impl Fn(&Server)) -> (Server, leasehold::gate::protocol::Answer) {
    let server = Server::start();
    assert_eq!(server.take("heron", 2, Some(0)).unwrap().result, Verdict::Taken);
    change(&server);
    let answer = server.take("plover", 3, Some(2)).unwrap();
    (server, answer)
}

fn etab(server: &Server, more: &str) {
    server.write("etab", &format!("{}{more}", server.read("etab")));
}

fn client(server: &Server, address: &str, states: &str) {
    let folder = server.path("root/proc/fs/nfsd/clients/7");
    fs::create_dir_all(&folder).unwrap();
    fs::write(
        folder.join("info"),
        format!("clientid: 0x1bdb64325f6d2ef0\naddress: \"{address}\"\nstatus: confirmed\n"),
    )
    .unwrap();
    fs::write(folder.join("states"), states).unwrap();
    fs::write(folder.join("ctl"), "").unwrap();
}

const OPEN: &str = "- 0x00000001f02e6d5f: { type: open, access: rw, deny: --, superblock: \"fd:10:13649\" }\n";

#[test]
fn what_still_lets_the_node_in_is_never_taken() {
    type Change = fn(&Server);
    let rows: &[(&str, Change, &str)] = &[
        ("the world", |s| etab(s, "/srv/estuary data|<world>|ro\n"), "exported to <world>"),
        ("a network", |s| etab(s, "/srv/estuary data|192.0.2.0/24|rw\n"), "192.0.2.0/24"),
        ("a netmask", |s| etab(s, "/srv/estuary data|192.0.2.0/255.255.255.0|rw\n"), "255.255.255.0"),
        ("a wildcard", |s| etab(s, "/srv/estuary data|*.example.com|rw\n"), "may be heron's"),
        ("a netgroup", |s| etab(s, "/srv/estuary data|@storage|rw\n"), "may be heron's"),
        ("a host name", |s| etab(s, "/srv/estuary data|heron.example.com|rw\n"), "may be heron's"),
        ("the folder above", |s| etab(s, "/srv|*|rw\n"), "/srv is exported to *"),
        ("a folder below", |s| etab(s, "/srv/estuary data/in|192.0.2.1|rw\n"), "/srv/estuary data/in"),
        ("another spelling", |s| etab(s, "/srv/estuary data/in|::FFFF:C000:201|rw\n"), "C000:201"),
        ("exportfs that does nothing", |s| s.write("deaf", ""), "exported to 192.0.2.1"),
        ("exportfs that fails", |s| s.write("fail", ""), "ended with status 1"),
        ("half a line", |s| s.write("list", "/srv/estuary data\n\t\t192.0.2.9(rw,sy"), "not understood"),
        ("a line of something else", |s| s.write("list", "exportfs: warning\n"), "not understood"),
        ("a list that is gone", |s| s.write("list", ""), "prints nothing"),
        (
            "the kernel's cache",
            |s| s.write("root/proc/fs/nfs/exports", "/srv/estuary\\040data\t192.0.2.1,192.0.2.0/24(rw)\n"),
            "the kernel's list",
        ),
        (
            "a question that rpc.mountd does not answer",
            |s| {
                s.write(ANSWERS, "#path domain(flags)\n# /srv/estuary\\040data\t192.0.2.1()\n");
                s.write("silent", "");
            },
            "rpc.mountd has not answered",
        ),
        ("no answers of rpc.mountd", |s| fs::remove_file(s.path(ANSWERS)).unwrap(), "cannot read"),
        ("no kernel list", |s| fs::remove_file(s.path("root/proc/fs/nfs/exports")).unwrap(), "cannot read"),
        (
            "a file for the next boot",
            |s| s.write("root/etc/exports", "\"/srv/estuary data\" 192.0.2.0/24(rw)\n"),
            "etc/exports",
        ),
        ("such a file not understood", |s| s.write("root/etc/exports.d/x.exports", "/a b(c\n"), "not understood"),
        ("files open", |s| client(s, "192.0.2.1:768", OPEN), "has files open"),
        ("files open, mapped", |s| client(s, "[::ffff:192.0.2.1]:768", OPEN), "has files open"),
        ("a client of nowhere", |s| client(s, "(null)", OPEN), "no address that is understood"),
        ("no clients to look at", |s| fs::remove_dir(s.path("root/proc/fs/nfsd/clients")).unwrap(), "Linux 5.3"),
        ("no threads", |s| s.write("root/proc/fs/nfsd/threads", "0\n"), "heron is out; plover"),
    ];
    for (what, change, words) in rows {
        let (server, answer) = plover_takes(change);
        assert!(answer.result == Verdict::Unverified && answer.text.contains(words), "{what}: {answer:?}");
        assert_eq!((answer.highest, answer.phase.as_deref()), (Some(3), Some("taking")), "{what}");
        let heron = answer.of("heron").unwrap();
        // Whoever is not proven out keeps the other out too.
        let alone = heron.state == State::Excluded || !server.admitted().contains(&CLIENTS[1].to_owned());
        assert!(alone, "{what}: {:?}", server.admitted());
    }
}

#[test]
fn the_folder_for_the_next_boot_is_made_where_it_is_missing() {
    let server = Server::start();
    assert!(!server.path("root/etc/exports.d").exists());
    assert_eq!(server.take("heron", 2, Some(0)).unwrap().result, Verdict::Taken);
    assert!(server.read(&format!("root/etc/exports.d/leasehold-{GATE}.exports")).contains(CLIENTS[0]));
}

#[test]
fn what_belongs_to_others_disturbs_nobody() {
    let (server, answer) = plover_takes(|s| {
        etab(s, OTHER);
        etab(s, "/srv/estuary|192.0.2.1|rw\n/srv/other|*|rw\n");
        s.write("root/etc/exports", "/srv/other 192.0.2.1(rw)\n/home *(rw)\n");
        s.write(
            "root/proc/fs/nfs/exports",
            "# Version 1.1\n/srv/other\t192.0.2.1(rw)\n/srv/estuary\\040data\t192.0.2.1()\n",
        );
        client(s, "[2001:db8::2]:900", OPEN);
    });
    assert_eq!(answer.result, Verdict::Taken, "{answer:?}");
    assert!(server.admitted().contains(&"198.51.100.9".to_owned()), "a stranger's export was touched");
    assert_eq!(server.read("root/proc/fs/nfsd/clients/7/ctl"), "", "the caller's own client was expired");
}

/// Seen with Linux 6.1: rpc.mountd read the list, the node was un-exported and the cache flushed, and then came its "yes".
#[test]
fn an_answer_behind_the_flush_is_flushed_as_well() {
    let (server, answer) = plover_takes(|s| s.write("late", "/srv/estuary\\040data\t192.0.2.1(rw,sync,sec=1)\n"));
    assert_eq!(answer.result, Verdict::Taken, "{answer:?}");
    assert_eq!(server.read(ANSWERS), "");
}

#[test]
fn a_question_of_another_client_is_not_waited_for() {
    let (_, answer) = plover_takes(|s| {
        s.write(ANSWERS, "# /srv/estuary\\040data\t192.0.2.2()\n/srv/other\t192.0.2.1(rw,sec=1)\n");
        s.write("silent", "");
    });
    assert_eq!(answer.result, Verdict::Taken, "{answer:?}");
}

#[test]
fn a_client_of_the_node_is_expired_and_one_without_files_is_no_danger() {
    let (server, answer) = plover_takes(|s| client(s, "192.0.2.1:768", ""));
    assert_eq!(answer.result, Verdict::Taken, "{answer:?}");
    assert_eq!(server.read("root/proc/fs/nfsd/clients/7/ctl"), "expire\n");
}

#[test]
fn after_the_cause_is_gone_the_same_take_goes_through() {
    let (server, answer) = plover_takes(|s| s.write("deaf", ""));
    assert_eq!(answer.result, Verdict::Unverified);
    fs::remove_file(server.path("deaf")).unwrap();
    assert_eq!(server.take("plover", 3, Some(2)).unwrap().result, Verdict::Taken);
    assert_eq!(server.admitted(), [CLIENTS[1]]);
}
