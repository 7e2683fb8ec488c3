//! The tables of exports, read to the last line or not at all.
//!
//! | table | what it means |
//! | --- | --- |
//! | `exportfs -v` (etab) | what rpc.mountd answers to the kernel |
//! | `/proc/fs/nfs/exports` | what the kernel has cached of those answers |
//! | `/proc/net/rpc/nfsd.export/content` | the same, and what it has asked or was denied, behind a `#` |
//! | `/etc/exports`, `/etc/exports.d/*.exports` | what comes back with the next `exportfs -r`, or boot |
//!
//! `exportfs -v` puts a path of more than 14 bytes on a line of its own, its client on the next (nfs-utils 2.6,
//! `utils/exportfs/exportfs.c`, `dump`); the kernel writes blanks in octal (`fs/nfsd/export.c`, `svc_export_show`) and
//! joins the names by which it knows one client with commas.

/// One client of one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    pub path: String,
    pub client: String,
    pub options: Vec<String>,
}

impl Entry {
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|o| o == option)
    }
}

/// What is printed by `exportfs -v`; `Err` quotes the line that is not understood.
pub fn exportfs(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    let mut path: Option<String> = None;
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let (before, client) = match (line.starts_with('/'), path.take()) {
            // A path alone: its client is on the next line.
            (true, None) if !line.contains('\t') => {
                path = Some(unescape(line.trim_end()));
                continue;
            }
            (true, None) => {
                let (before, client) = line.rsplit_once('\t').unwrap_or((line, ""));
                (unescape(before.trim_end()), client)
            }
            (false, Some(before)) if line.starts_with([' ', '\t']) => (before, line.trim()),
            (_, _) => return Err(line.to_owned()),
        };
        let (client, options) = client_of(client).filter(|(_, options)| !options.is_empty()).ok_or(line)?;
        entries.push(Entry { path: before, client, options });
    }
    match path {
        Some(path) => Err(path),
        None if !text.is_empty() && !text.ends_with('\n') => Err(text.lines().last().unwrap_or_default().to_owned()),
        None => Ok(entries),
    }
}

/// The kernel's `/proc/fs/nfs/exports`. An entry without options is a cached "no".
pub fn kernel(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        entries.extend(cached(line)?.into_iter().filter(|entry| !entry.options.is_empty()));
    }
    Ok(entries)
}

/// The kernel's `/proc/net/rpc/nfsd.export/content`: every "yes", and as `# PATH<TAB>CLIENT()` what is a "no" or not
/// answered yet, which look the same. The first line names the columns.
pub fn questions(text: &str) -> Result<Vec<Entry>, String> {
    let mut entries = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with("#path")) {
        entries.extend(cached(line.strip_prefix("# ").unwrap_or(line))?);
    }
    Ok(entries)
}

/// One line of the kernel, which joins the names of a client.
fn cached(line: &str) -> Result<Vec<Entry>, String> {
    let (path, client) = line.split_once('\t').filter(|(path, _)| path.starts_with('/')).ok_or(line)?;
    let (names, options) = client_of(client).ok_or(line)?;
    // With many clients rpc.mountd names each by its address, marked so (nfs-utils, `use_ipaddr`).
    let bare = |name: &str| name.strip_prefix('$').unwrap_or(name).to_owned();
    let entry = |name| Entry { path: unescape(path), client: bare(name), options: options.clone() };
    Ok(unescape(&names).split(',').map(entry).collect())
}

/// A file of exports(5).
pub fn file(text: &str) -> Result<Vec<Entry>, String> {
    let joined = text.replace("\\\n", " ");
    let mut entries = Vec::new();
    for line in joined.lines() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let (path, rest) = match line.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').ok_or(line)?,
            None => line.split_once([' ', '\t']).unwrap_or((line, "")),
        };
        let clients: Vec<&str> = rest.split_whitespace().filter(|word| !word.starts_with('-')).collect();
        // No client at all means the world.
        let clients = if clients.is_empty() { vec!["*"] } else { clients };
        for word in clients {
            let (client, options) =
                if word.contains('(') { client_of(word).ok_or(line)? } else { (word.to_owned(), vec![]) };
            let client = if client.is_empty() { "*".to_owned() } else { client };
            entries.push(Entry { path: unescape(path), client, options });
        }
    }
    Ok(entries)
}

/// `NAME(OPTION,OPTION…)`, whole.
fn client_of(text: &str) -> Option<(String, Vec<String>)> {
    let (name, rest) = text.split_once('(')?;
    let inner = rest.strip_suffix(')').filter(|inner| !inner.contains(['(', ')']))?;
    if name.contains(char::is_whitespace) {
        return None;
    }
    Some((name.to_owned(), inner.split(',').filter(|o| !o.is_empty()).map(str::to_owned).collect()))
}

/// Three octal digits after a backslash are one byte.
pub fn unescape(text: &str) -> String {
    let (bytes, mut out) = (text.as_bytes(), Vec::with_capacity(text.len()));
    let mut at = 0;
    while at < bytes.len() {
        let digits = text.get(at + 1..at + 4).filter(|digits| digits.bytes().all(|b| b.is_ascii_digit()));
        let octal = digits.and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match (bytes[at], octal) {
            (b'\\', Some(byte)) => {
                out.push(byte);
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A path as exports(5) wants it.
pub fn escape(path: &str) -> String {
    let plain = |c: &char| !c.is_whitespace() && !matches!(c, '#' | '"' | '\\' | '(' | ')');
    path.chars().map(|c| if plain(&c) { c.to_string() } else { format!("\\{:03o}", u32::from(c)) }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(entries: &[Entry]) -> Vec<String> {
        entries.iter().map(|e| format!("{} {} {}", e.path, e.client, e.options.join("+"))).collect()
    }

    /// In the form of nfs-utils 2.6.2.
    const LIST: &str = "/srv/reef     \t192.0.2.21(sync,wdelay,hide,no_subtree_check,sec=sys,rw,secure,root_squash,no_all_squash)\n\
        /srv/a-very-long-name/data\n\t\t2001:db8:5::21(sync,rw)\n\
        /srv/pub      \t<world>(sync,ro)\n\
        /srv/with\\040blank\n\t\t192.0.2.0/24(sync,rw)\n";

    #[test]
    fn the_list_of_exportfs_is_read_with_its_wrapped_lines_and_escapes() {
        let entries = exportfs(LIST).unwrap();
        assert!(entries[0].has("rw") && entries[0].has("secure") && entries[0].client == "192.0.2.21");
        assert_eq!(
            shown(&entries)[1..],
            [
                "/srv/a-very-long-name/data 2001:db8:5::21 sync+rw",
                "/srv/pub <world> sync+ro",
                "/srv/with blank 192.0.2.0/24 sync+rw"
            ]
        );
        assert_eq!(exportfs("").unwrap(), []);
    }

    #[test]
    fn half_a_list_is_no_list() {
        let starts: Vec<usize> = LIST.match_indices('\n').map(|(at, _)| at + 1).collect();
        // A path whose client is missing is half an entry as well.
        let whole = |cut: &usize| {
            *cut == 0 || starts.contains(cut) && !LIST[..*cut].ends_with("data\n") && !LIST[..*cut].ends_with("blank\n")
        };
        for cut in 0..LIST.len() {
            assert_eq!(exportfs(&LIST[..cut]).is_ok(), whole(&cut), "{:?}", &LIST[..cut]);
        }
        for wrong in [
            "exportfs: could not open /var/lib/nfs/.etab.lock\n",
            "\t\t192.0.2.1(rw)\n",
            "/a\n/b\t*(rw)\n",
            "/a\t*(rw) x\n",
            "/a\t*()\n",
        ] {
            assert!(exportfs(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_kernel_names_one_client_in_several_ways() {
        let text = "# Version 1.1\n# Path Client(Flags) # IPs\n\
                    /srv/a\\040b\t192.0.2.21,192.0.2.0/24(rw,sync,sec=1)\n/srv/c\t$192.0.2.9(ro)\n/srv/no\t192.0.2.8()\n";
        let got = shown(&kernel(text).unwrap());
        let expected =
            ["/srv/a b 192.0.2.21 rw+sync+sec=1", "/srv/a b 192.0.2.0/24 rw+sync+sec=1", "/srv/c 192.0.2.9 ro"];
        assert_eq!(got, expected);
        assert!(kernel("/srv/a 192.0.2.1(rw)\n").is_err() && kernel("/srv/a\t192.0.2.1(rw\n").is_err());
    }

    /// As Linux 6.1 prints it, with a question that rpc.mountd has not answered and a "no".
    #[test]
    fn questions_without_an_answer_are_read_beside_the_answers() {
        let text = "#path domain(flags)\n/srv/a\\040b\t2001:db8::1(rw,sync,uuid=86cd6cdd:6e85413c,sec=1)\n# /srv/c\t192.0.2.9()\n";
        let got = shown(&questions(text).unwrap());
        assert_eq!(got, ["/srv/a b 2001:db8::1 rw+sync+uuid=86cd6cdd:6e85413c+sec=1", "/srv/c 192.0.2.9 "]);
        assert!(questions("# /srv/c 192.0.2.9()\n").is_err() && questions("# /srv/c\t192.0.2.9(\n").is_err());
    }

    #[test]
    fn the_files_are_read_with_quotes_continuations_and_missing_clients() {
        let text = "# comment\n/srv/a -sync 192.0.2.1(rw) \\\n  *.example.com(ro)\n\"/srv/b c\" @group(rw)\n/srv/d\n/srv/e\\040f (ro) # x\n";
        let got = shown(&file(text).unwrap());
        let expected =
            ["/srv/a 192.0.2.1 rw", "/srv/a *.example.com ro", "/srv/b c @group rw", "/srv/d * ", "/srv/e f * ro"];
        assert_eq!(got, expected);
        assert!(file("/srv/a 192.0.2.1(rw\n").is_err() && file("\"/srv/a 192.0.2.1(rw)\n").is_err());
        assert_eq!(unescape("/a\\+12\\9\\"), "/a\\+12\\9\\");
        assert_eq!(unescape(&escape("/srv/a b#(c)\"\\")), "/srv/a b#(c)\"\\");
    }
}
