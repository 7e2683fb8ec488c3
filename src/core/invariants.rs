//! What must hold of one node at any time, and what must not. Checked after every step, in release builds too:
//! a dead primary is better than a second one.

use super::message::{Activity, Standing};
use super::node::{Node, Resources, RoleState};
use super::time::Instant;

/// Panics when the node is in a state that it must never be in.
pub fn check(node: &Node, now: Instant) {
    let written = node.record.written();
    let wanted = node.record.wanted();
    let serving = matches!(node.resources, Resources::Starting(_) | Resources::Up(_));
    let is_primary = matches!(node.role, RoleState::Primary(_));

    assert!(!serving || is_primary, "resources run only on a primary");
    assert!(!is_primary || serving, "a primary runs its resources, or has demoted");
    assert!(wanted.highest_token >= written.highest_token, "the highest token never falls");
    assert!(wanted.highest_token >= wanted.held_token, "what is held was seen");
    assert!(wanted.highest_token >= wanted.granted_token, "what is granted was seen");
    if is_primary {
        assert!(!node.right_has_ended(now), "a primary acts only within its right");
        assert!(written.standing != Standing::Out || wanted.standing != Standing::Out, "a primary is not out");
        assert!(node.release.is_none() && node.claim.is_none(), "a primary releases and claims nothing");
        assert!(!node.acts_sole() || node.admitted().is_none(), "a sole primary has admitted nobody");
    }
    let shows_grant = node.hears().and_then(|d| node.grantable(d)).is_some();
    if shows_grant {
        assert!(!node.holding() && node.shown_claim().is_none(), "a grantor neither holds nor claims");
        assert!(node.fencing.activity() == Activity::Idle, "none is granted from the attempt on");
    }
    if node.release.is_some() {
        assert!(node.resources == Resources::Stopped, "a release is of a verified stop");
        assert!(
            node.claim.is_none() && !node.fencing.is_attempting(),
            "a release is withdrawn before claim and attempt"
        );
    }
}
