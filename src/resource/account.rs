//! The user that a service runs as, looked up in `/etc/passwd` alone: a directory service that hangs must not hold up
//! a failover.

use crate::process::Identity;

/// A user of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub identity: Identity,
    pub home: String,
}

/// The account of this name; `None` when there is none, or the file cannot be read.
pub fn find(name: &str) -> Option<Account> {
    find_in(&std::fs::read_to_string("/etc/passwd").ok()?, name)
}

fn find_in(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let fields: Vec<_> = line.split(':').collect();
        let &[user, _, uid, gid, _, home, ..] = fields.as_slice() else { return None };
        let identity = Identity { uid: uid.parse().ok()?, gid: gid.parse().ok()? };
        (user == name).then(|| Account { name: user.to_owned(), identity, home: home.to_owned() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_found_by_its_whole_name_and_odd_lines_do_no_harm() {
        let passwd =
            "root:x:0:0:root:/root:/bin/sh\nbad line\nkelp:x:x:1::/:/bin/sh\nreef:x:7:8:,,,:/srv/reef:/bin/sh\n";
        let reef = find_in(passwd, "reef").unwrap();
        assert_eq!((reef.identity, reef.home.as_str()), (Identity { uid: 7, gid: 8 }, "/srv/reef"));
        assert_eq!(find_in(passwd, "kelp"), None);
        assert_eq!(find_in(passwd, "ree"), None);
    }
}
