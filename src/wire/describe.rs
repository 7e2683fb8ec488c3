//! One datagram as one line for people: traces, golden scenarios, debug logs. Nothing parses it.

use crate::core::{Activity, Datagram, Role, Standing};

/// `second 9f#17 standby paired held=2 highest=4 ready echo=1a#40 grant=1a#40/4/10s`: plain words are states and
/// flags that are set; what is absent is not shown; incarnations are hex, and `#` precedes a sequence.
pub fn describe(datagram: &Datagram) -> String {
    let d = datagram;
    let mut words = vec![
        format!("{} {}#{} {} {}", d.sender, d.incarnation, d.seq, role(d.role), standing(d.standing)),
        format!("held={} highest={}", d.held_token, d.highest_token),
    ];
    words.extend(flags(d).into_iter().filter(|(set, _)| *set).map(|(_, word)| word.to_owned()));
    words.extend(values(d).into_iter().flatten());
    words.join(" ")
}

fn flags(d: &Datagram) -> [(bool, &'static str); 10] {
    [
        (d.holding, "holding"),
        (d.resources_up, "up"),
        (d.ready, "ready"),
        (d.wish, "wish"),
        (d.activity == Activity::Attempt, "attempt"),
        (d.activity == Activity::Proof, "proof"),
        (d.notices.leave, "leave"),
        (d.notices.freeze, "freeze"),
        (d.notices.rolled_back, "rolled-back"),
        (d.notices.cannot_fence, "cannot-fence"),
    ]
}

fn values(d: &Datagram) -> [Option<String>; 6] {
    [
        d.admitted.map(|incarnation| format!("admitted={incarnation}")),
        d.claim.map(|token| format!("claim={token}")),
        d.echo.map(|echo| format!("echo={}#{}", echo.incarnation, echo.seq)),
        d.grant.map(|grant| format!("grant={}#{}/{}/{}", grant.holder, grant.seq, grant.token, grant.term)),
        d.release.map(|token| format!("release={token}")),
        d.notices.cannot.map(|token| format!("cannot={token}")),
    ]
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Joining => "joining",
        Role::Standby => "standby",
        Role::TakingOver => "taking-over",
        Role::Primary => "primary",
        Role::Demoting => "demoting",
    }
}

fn standing(standing: Standing) -> &'static str {
    match standing {
        Standing::Paired => "paired",
        Standing::Sole => "sole",
        Standing::Out => "out",
    }
}

#[cfg(test)]
mod tests {
    use crate::wire::tests::{full, minimal};

    #[test]
    fn a_quiet_datagram_is_a_short_line() {
        assert_eq!(super::describe(&minimal()), "first 00000000000000a1#1 joining out held=0 highest=0");
    }

    #[test]
    fn a_datagram_with_everything_shows_everything() {
        assert_eq!(
            super::describe(&full()),
            "second 00000000000000b2#70000 primary paired held=7 highest=9 holding up ready wish proof leave freeze rolled-back \
             admitted=00000000000000a1 claim=9 echo=00000000000000a1#41 grant=00000000000000a1#40/4/10s release=5 cannot=6"
        );
    }
}
