//! Who may ask: credentials of the connected process against the configured groups.
//!
//! The kernel gives uid and primary gid of the peer as they were when it connected. Other memberships are read from
//! the local group file: the credentials of `/proc/PID` would belong to whoever got that process id since. The file
//! is read afresh for each connection of somebody who is neither root nor the daemon's own user, off the event loop:
//! it may lie on a stalled disk.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use super::server::Caller;

/// Longest wait for the local user database.
const LOOKUP_LIMIT: Duration = Duration::from_secs(2);

/// Which groups may do what. Root, and the user that the daemon runs as, may do everything.
#[derive(Debug, Clone)]
pub struct Access {
    /// Members may ask for status.
    pub read_group: Option<String>,
    /// Members may give commands, and ask for status.
    pub command_group: Option<String>,
    /// The user that this daemon runs as.
    pub own_uid: u32,
    /// Where users and groups are listed; `/etc` but in tests.
    pub database: PathBuf,
}

/// What one connection may do. Commands include reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rights {
    None,
    Read,
    Command,
}

impl Access {
    pub fn new(read_group: Option<String>, command_group: Option<String>) -> Access {
        let own_uid = rustix::process::geteuid().as_raw();
        Access { read_group, command_group, own_uid, database: "/etc".into() }
    }

    /// Rights of root and of the daemon's own user never wait for a disk.
    pub(super) async fn rights(&self, caller: Caller) -> Rights {
        if caller.uid == 0 || caller.uid == self.own_uid {
            return Rights::Command;
        }
        if self.read_group.is_none() && self.command_group.is_none() {
            return Rights::None;
        }
        let access = self.clone();
        let lookup = tokio::task::spawn_blocking(move || access.look_up(caller));
        tokio::time::timeout(LOOKUP_LIMIT, lookup).await.map_or(Rights::None, |done| done.unwrap_or(Rights::None))
    }

    fn look_up(&self, caller: Caller) -> Rights {
        let users = fs::read_to_string(self.database.join("passwd")).unwrap_or_default();
        let groups = fs::read_to_string(self.database.join("group")).unwrap_or_default();
        let names: Vec<&str> = user_names(&users, caller.uid).collect();
        let member = |group: &Option<String>| {
            group.as_deref().is_some_and(|group| is_member(&groups, group, caller.gid, &names))
        };
        match (member(&self.command_group), member(&self.read_group)) {
            (true, _) => Rights::Command,
            (false, true) => Rights::Read,
            (false, false) => Rights::None,
        }
    }

    /// Whether anybody but root and the daemon's own user can get anything.
    pub(super) fn is_shared(&self) -> bool {
        self.read_group.is_some() || self.command_group.is_some()
    }

    /// What to tell somebody who may not do something that needs `wanted`.
    pub(super) fn remedy(&self, wanted: Rights) -> String {
        let mut groups: Vec<&str> = self.command_group.as_deref().into_iter().collect();
        if wanted == Rights::Read {
            groups.extend(self.read_group.as_deref());
        }
        groups.dedup();
        match groups[..] {
            [] => "use root; no group is configured for this (control.read_group, control.command_group)".into(),
            _ => format!("use root, or join the group {}", groups.join(" or ")),
        }
    }
}

/// Every name of this uid: several may share one.
fn user_names(passwd: &str, uid: u32) -> impl Iterator<Item = &str> {
    passwd.lines().filter_map(move |line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)?.parse() == Ok(uid)).then_some(name)
    })
}

/// Whether the group of this name has this gid, or lists one of these users. A group may also be given by its number.
fn is_member(file: &str, group: &str, gid: u32, users: &[&str]) -> bool {
    if group.parse() == Ok(gid) {
        return true;
    }
    file.lines().any(|line| {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, number, members] = fields[..] else { return false };
        (name == group || number == group)
            && (number.parse() == Ok(gid) || members.split(',').any(|member| users.contains(&member)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0::/root:/bin/sh\nann:x:1001:1001::/:/bin/sh\nbob:x:1002:50::/:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nops:x:50:carol\nwatchers:x:60:ann,dave\nbroken\nempty:x:70:\n";

    fn rights(uid: u32, gid: u32) -> Rights {
        let database = tempfile::tempdir().unwrap();
        fs::write(database.path().join("passwd"), PASSWD).unwrap();
        fs::write(database.path().join("group"), GROUP).unwrap();
        let access = Access {
            read_group: Some("watchers".into()),
            command_group: Some("ops".into()),
            own_uid: 500,
            database: database.path().into(),
        };
        access.look_up(Caller { uid, gid, pid: None })
    }

    #[test]
    fn a_primary_group_and_a_listed_membership_both_count() {
        assert_eq!(rights(1002, 50), Rights::Command);
        assert_eq!(rights(1001, 1001), Rights::Read);
    }

    #[test]
    fn strangers_and_users_without_a_name_get_nothing() {
        assert_eq!(rights(1003, 1003), Rights::None);
        assert_eq!(rights(1002, 1002), Rights::None);
    }

    #[test]
    fn a_missing_user_database_gives_nobody_anything() {
        let access = Access { database: "/nonexistent".into(), ..Access::new(Some("watchers".into()), None) };
        assert_eq!(access.look_up(Caller { uid: 1001, gid: 60, pid: None }), Rights::None);
    }

    #[test]
    fn a_denial_names_the_groups_that_would_do() {
        let access = Access::new(Some("watchers".into()), Some("ops".into()));
        assert_eq!(access.remedy(Rights::Read), "use root, or join the group ops or watchers");
        assert_eq!(access.remedy(Rights::Command), "use root, or join the group ops");
    }
}
