//! Which datagrams a script means: `matching release,role=standby`.

use std::fmt;

use crate::core::{Activity, Datagram, Role, Standing, Token};

/// One property of a datagram. Scripts join several with commas; all must hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Property {
    Grant,
    GrantOf(Token),
    Release,
    Claim,
    Admitted,
    Wish,
    Leave,
    Freeze,
    Cannot,
    Holding,
    Echo,
    Attempt,
    Proof,
    Ready,
    NotReady,
    Role(Role),
    Standing(Standing),
}

const PLAIN: [(&str, Property); 14] = [
    ("grant", Property::Grant),
    ("release", Property::Release),
    ("claim", Property::Claim),
    ("admitted", Property::Admitted),
    ("wish", Property::Wish),
    ("leave", Property::Leave),
    ("freeze", Property::Freeze),
    ("cannot", Property::Cannot),
    ("holding", Property::Holding),
    ("echo", Property::Echo),
    ("attempt", Property::Attempt),
    ("proof", Property::Proof),
    ("ready", Property::Ready),
    ("not-ready", Property::NotReady),
];

const ROLES: [(&str, Role); 5] = [
    ("joining", Role::Joining),
    ("standby", Role::Standby),
    ("taking-over", Role::TakingOver),
    ("primary", Role::Primary),
    ("demoting", Role::Demoting),
];

const STANDINGS: [(&str, Standing); 3] =
    [("paired", Standing::Paired), ("sole", Standing::Sole), ("out", Standing::Out)];

impl Property {
    pub fn holds(self, d: &Datagram) -> bool {
        match self {
            Property::Grant => d.grant.is_some(),
            Property::GrantOf(token) => d.grant.is_some_and(|g| g.token == token),
            Property::Release => d.release.is_some(),
            Property::Claim => d.claim.is_some(),
            Property::Admitted => d.admitted.is_some(),
            Property::Wish => d.wish,
            Property::Leave => d.notices.leave,
            Property::Freeze => d.notices.freeze,
            Property::Cannot => d.notices.cannot.is_some(),
            Property::Holding => d.holding,
            Property::Echo => d.echo.is_some(),
            Property::Attempt => d.activity == Activity::Attempt,
            Property::Proof => d.activity == Activity::Proof,
            Property::Ready => d.ready,
            Property::NotReady => !d.ready,
            Property::Role(role) => d.role == role,
            Property::Standing(standing) => d.standing == standing,
        }
    }

    fn parse(word: &str) -> Result<Property, String> {
        if let Some((_, property)) = PLAIN.iter().find(|(name, _)| *name == word) {
            return Ok(*property);
        }
        let found = match word.split_once('=') {
            Some(("grant", token)) => token.parse().ok().map(|t| Property::GrantOf(Token(t))),
            Some(("role", role)) => ROLES.iter().find(|(n, _)| *n == role).map(|(_, r)| Property::Role(*r)),
            Some(("standing", s)) => STANDINGS.iter().find(|(n, _)| *n == s).map(|(_, s)| Property::Standing(*s)),
            _ => None,
        };
        found.ok_or_else(|| format!("`{word}` is no property of a datagram"))
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = PLAIN.iter().find(|(_, p)| p == self) {
            return f.write_str(name);
        }
        match self {
            Property::GrantOf(token) => write!(f, "grant={token}"),
            Property::Role(role) => write!(f, "role={}", shown_role(*role)),
            Property::Standing(standing) => write!(f, "standing={}", shown_standing(*standing)),
            other => write!(f, "{other:?}"),
        }
    }
}

pub fn shown_role(role: Role) -> &'static str {
    ROLES.iter().find(|(_, r)| *r == role).map_or("", |(name, _)| name)
}

pub fn shown_standing(standing: Standing) -> &'static str {
    STANDINGS.iter().find(|(_, s)| *s == standing).map_or("", |(name, _)| name)
}

/// All of these must hold; the empty set matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pattern(pub Vec<Property>);

impl Pattern {
    pub fn parse(text: &str) -> Result<Pattern, String> {
        text.split(',').map(Property::parse).collect::<Result<_, _>>().map(Pattern)
    }

    pub fn matches(&self, datagram: &Datagram) -> bool {
        self.0.iter().all(|p| p.holds(datagram))
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, property) in self.0.iter().enumerate() {
            write!(f, "{}{property}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_property_is_read_as_it_is_shown() {
        let text = "grant,release,claim,admitted,wish,leave,freeze,cannot,holding,echo,attempt,proof,ready,not-ready,\
                    grant=4,role=taking-over,standing=sole";
        assert_eq!(Pattern::parse(text).expect("all known").to_string(), text);
        assert!(Pattern::parse("grand").is_err());
    }
}
