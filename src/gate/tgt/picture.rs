//! What `tgtadm --op show --mode target` prints, taken apart as a whole: a line that is not understood makes all of it
//! worthless, because it may be a session that was overlooked.

/// One target, and who is connected to this tgtd at all.
#[derive(Debug, PartialEq, Eq, Default)]
pub struct Picture {
    pub tid: String,
    /// Initiator names, addresses, or `ALL`.
    pub acl: Vec<String>,
    pub sessions: Vec<Session>,
    /// The address of every connection of every target.
    pub connected: Vec<String>,
}

#[derive(Debug, PartialEq, Eq, Default)]
pub struct Session {
    pub id: String,
    pub initiator: String,
    pub connections: Vec<Connection>,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Connection {
    pub id: String,
    pub address: String,
}

/// In which part of a target's description a line stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Sessions,
    Acl,
    /// System, LUNs, accounts: they let nobody in.
    Other,
}

impl Picture {
    pub fn of(text: &str, target: &str) -> Result<Picture, String> {
        let mut all: Vec<(String, Picture)> = Vec::new();
        let (mut part, mut ended) = (Part::Other, true);
        for line in text.lines() {
            if let Some((tid, name)) = line.strip_prefix("Target ").and_then(|rest| rest.split_once(": ")) {
                finish(ended)?;
                all.push((name.trim().to_owned(), Picture { tid: tid.to_owned(), ..Picture::default() }));
                (part, ended) = (Part::Other, false);
                continue;
            }
            let (_, picture) = all.last_mut().ok_or_else(|| not_understood(line))?;
            if let Some(title) = line.strip_prefix("    ").filter(|title| !title.starts_with(' ')) {
                part = part_of(title).ok_or_else(|| not_understood(line))?;
                ended = part == Part::Acl;
                continue;
            }
            picture.line(part, line.trim()).ok_or_else(|| not_understood(line))?;
        }
        finish(ended)?;
        let connected =
            all.iter().flat_map(|(_, p)| &p.sessions).flat_map(|s| &s.connections).map(|c| c.address.clone());
        let connected = connected.collect();
        let mut named = all.into_iter().filter(|(name, _)| name == target).map(|(_, picture)| picture);
        match (named.next(), named.next()) {
            (Some(picture), None) => Ok(Picture { connected, ..picture }),
            (None, _) => Err(format!("tgtd has no target {target}")),
            (Some(_), Some(_)) => Err(format!("tgtd has two targets {target}")),
        }
    }

    fn line(&mut self, part: Part, line: &str) -> Option<()> {
        match part {
            Part::Other => {}
            Part::Acl => self.acl.push(line.to_owned()),
            Part::Sessions => match line.split_once(": ")? {
                ("I_T nexus", id) => self.sessions.push(Session { id: id.to_owned(), ..Session::default() }),
                ("Initiator", who) => self.sessions.last_mut()?.initiator = who.split_once(" alias: ")?.0.to_owned(),
                ("Connection", id) => {
                    let connection = Connection { id: id.to_owned(), address: String::new() };
                    self.sessions.last_mut()?.connections.push(connection);
                }
                ("IP Address", address) => {
                    self.sessions.last_mut()?.connections.last_mut()?.address = address.to_owned();
                }
                _ => return None,
            },
        }
        Some(())
    }
}

fn part_of(title: &str) -> Option<Part> {
    match title {
        "I_T nexus information:" => Some(Part::Sessions),
        "ACL information:" => Some(Part::Acl),
        "System information:" | "LUN information:" | "Account information:" => Some(Part::Other),
        _ => None,
    }
}

/// The list of whom it lets in comes last: without it the description was cut off.
fn finish(ended: bool) -> Result<(), String> {
    if ended { Ok(()) } else { Err("tgtadm's list of targets ends in the middle".to_owned()) }
}

fn not_understood(line: &str) -> String {
    format!("not understood in tgtadm's list: {:?}", line.chars().take(100).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHOWN: &str = "Target 1: iqn.x:d1\n    System information:\n        Driver: iscsi\n    I_T nexus information:\n        I_T nexus: 7\n            Initiator: iqn.a alias: none\n            Connection: 0\n                IP Address: 192.0.2.7\n    LUN information:\n        LUN: 0\n    Account information:\n    ACL information:\n        iqn.a\nTarget 2: iqn.x:d2\n    ACL information:\n        ALL\n";

    #[test]
    fn one_target_is_found_among_others() {
        let picture = Picture::of(SHOWN, "iqn.x:d1").unwrap();
        assert_eq!((picture.tid.as_str(), &picture.acl[..]), ("1", &["iqn.a".to_owned()][..]));
        assert_eq!((picture.sessions[0].initiator.as_str(), picture.sessions[0].id.as_str()), ("iqn.a", "7"));
        assert_eq!(picture.connected, ["192.0.2.7"]);
        assert_eq!(Picture::of(SHOWN, "iqn.x:d2").unwrap().acl, ["ALL"]);
    }

    #[test]
    fn half_a_list_or_a_line_of_another_kind_is_no_list() {
        let cut = SHOWN.split("    ACL").next().unwrap();
        assert!(Picture::of(cut, "iqn.x:d1").unwrap_err().contains("ends in the middle"));
        assert!(Picture::of("", "iqn.x:d1").unwrap_err().contains("no target"));
        // The alias is the initiator's own text.
        let forged = SHOWN.replace("alias: none", "alias: x\n    ACL information:\n    rubbish");
        assert!(Picture::of(&forged, "iqn.x:d1").unwrap_err().contains("rubbish"));
        let twice = format!("{SHOWN}{}", SHOWN.replace("Target 1", "Target 3"));
        assert!(Picture::of(&twice, "iqn.x:d1").unwrap_err().contains("two targets"));
    }
}
