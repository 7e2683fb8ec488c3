//! Finds the interface that an address belongs on, and says what is there where it is not.

use crate::config::AddressResource;
use crate::os::net::address::{Carrier, Held, Interface, same_subnet};

/// What the kernel lists, at one moment.
#[derive(Debug)]
pub struct View {
    pub interfaces: Vec<Interface>,
    pub addresses: Vec<Held>,
}

impl View {
    /// The interface of this name, if it can carry an address now.
    ///
    /// # Errors
    /// Why not, with what there is instead.
    pub fn usable(&self, name: &str, config: &AddressResource) -> Result<&Interface, String> {
        let Some(found) = self.interfaces.iter().find(|i| i.name == name) else {
            return Err(format!("there is no interface {name} here; there are {}", self.listed(config)));
        };
        match found {
            Interface { up: false, .. } => Err(format!("interface {name} is switched off (`ip link set {name} up`)")),
            Interface { carrier: Carrier::Off, .. } => {
                Err(format!("interface {name} has no carrier: cable, switch port, bond?"))
            }
            Interface { carrier: Carrier::Settling, .. } => {
                Err(format!("interface {name} has a carrier that is not in use yet"))
            }
            Interface { carrier: Carrier::On, .. } => Ok(found),
        }
    }

    /// Whether the interface will be usable in a moment.
    pub fn settles(&self, name: &str) -> bool {
        self.interfaces.iter().any(|i| i.name == name && i.up && i.carrier == Carrier::Settling)
    }

    /// Every entry of the address, on whatever interface.
    pub fn entries(&self, config: &AddressResource) -> Vec<&Held> {
        self.addresses.iter().filter(|held| held.address == config.address).collect()
    }

    /// Whether the interface has a way into the subnet of the address without it.
    pub fn reaches_subnet(&self, on: &Interface, config: &AddressResource) -> bool {
        let covers = |held: &Held| {
            let other = held.index == on.index && held.address != config.address;
            other && held.prefix <= config.prefix && same_subnet(held.address, config.address, held.prefix)
        };
        self.addresses.iter().any(covers)
    }

    fn listed(&self, config: &AddressResource) -> String {
        let one = |i: &Interface| {
            let state = match (i.up, i.carrier) {
                (false, _) => "off",
                (true, Carrier::Off) => "no carrier",
                (true, Carrier::Settling | Carrier::On) => "carrier",
            };
            let subnet = format!("{}/{}", config.address, config.prefix);
            let inside =
                if self.reaches_subnet(i, config) { format!(", in the subnet of {subnet}") } else { String::new() };
            format!("{} ({state}{inside})", i.name)
        };
        self.interfaces.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
