//! How an iSCSI target knows a node: by the names of its initiators, which the node itself sends at login.

use super::config::Node;

/// RFC 7143, 4.2.7: a type, a dot, and no blanks; what would end a value in a file is left out too.
pub fn is_iscsi_name(name: &str) -> bool {
    let known = ["iqn.", "eui.", "naa."].iter().any(|kind| name.to_ascii_lowercase().starts_with(kind));
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '.' | ':' | '_');
    known && name.len() <= 223 && name.chars().all(plain)
}

/// Each node by initiator names of its own.
pub fn check(nodes: &[Node; 2]) -> Vec<String> {
    let mut wrong = Vec::new();
    for node in nodes {
        if node.initiators.is_empty() {
            wrong.push(format!(
                "node {} has no `initiators`: write every name in its /etc/iscsi/initiatorname.iscsi",
                node.name
            ));
        }
        if !node.clients.is_empty() {
            wrong.push(format!("node {} has `clients`; this gate knows nodes by `initiators`", node.name));
        }
        let odd = node.initiators.iter().filter(|name| !is_iscsi_name(name));
        wrong.extend(odd.map(|name| {
            format!("initiator {name:?} of {}: not a name such as \"iqn.2026-01.example:heron\"", node.name)
        }));
    }
    let shared = nodes[0].initiators.iter().filter(|name| is_of(&nodes[1], name));
    wrong.extend(shared.map(|name| format!("both nodes have the initiator {name}")));
    wrong
}

/// Names are compared without regard to case (RFC 7143, 4.2.7.2), as tgtd does.
pub fn is_of(node: &Node, name: &str) -> bool {
    node.initiators.iter().any(|own| own.eq_ignore_ascii_case(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, initiators: &[&str]) -> Node {
        let initiators = initiators.iter().map(|i| (*i).to_owned()).collect();
        Node { name: name.to_owned(), clients: Vec::new(), initiators }
    }

    #[test]
    fn each_node_has_names_of_its_own() {
        let heron = node("heron", &["iqn.2026-01.example:heron"]);
        assert_eq!(check(&[heron.clone(), node("plover", &["iqn.2026-01.example:plover"])]), [""; 0]);
        for (initiators, words) in [
            (&["IQN.2026-01.example:Heron"][..], "both nodes have the initiator"),
            (&[], "has no `initiators`"),
            (&["ALL"], "not a name"),
            (&["iqn.x\n</target>"], "not a name"),
        ] {
            let told = check(&[heron.clone(), node("plover", initiators)]).join("\n");
            assert!(told.contains(words), "{told}");
        }
        let by_address = Node { clients: vec!["192.0.2.2".to_owned()], ..node("plover", &["iqn.x:p"]) };
        assert!(check(&[heron, by_address]).join("").contains("`clients`"));
    }
}
