//! Removes one address and nothing else.
//!
//! The kernel removes with the first IPv4 address of a subnet all its later ones, and with the last address of an interface
//! all its routes (casebook C23). What this daemon adds has a host prefix and takes nobody along; an entry that somebody
//! else made may. Then the kernel is asked to promote the next one, and what went all the same is put back.

use std::io;
use std::path::PathBuf;

use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteProtocol, RouteType};

use super::address::{Held, NetError, Netlink, same_subnet};

/// Whether there was something to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    Removed,
    /// It, or its interface, was gone already.
    Absent,
}

/// Removes exactly `entry`, and leaves its neighbours and their routes as they were.
///
/// # Errors
/// It may be there still. A neighbour that cannot be put back is told in the log alone: the address is gone, and that
/// is what was asked.
pub async fn remove(netlink: &Netlink, entry: &Held) -> Result<Removal, NetError> {
    let followers = followers(netlink, entry).await?;
    if followers.is_empty() {
        return deleted(netlink.delete(entry).await);
    }
    let interfaces = netlink.interfaces().await?;
    let name = interfaces.into_iter().find(|i| i.index == entry.index).map(|i| i.name).unwrap_or_default();
    let routes = routes_of(netlink, entry).await?;
    let removal = {
        let _promotion = Promotion::on(&name);
        deleted(netlink.delete(entry).await)?
    };
    put_back(netlink, &followers, routes).await;
    Ok(removal)
}

fn deleted(result: Result<(), NetError>) -> Result<Removal, NetError> {
    match result {
        Ok(()) => Ok(Removal::Removed),
        Err(error) if error.is_gone() => Ok(Removal::Absent),
        Err(error) => Err(error),
    }
}

/// The addresses that would go with this one.
async fn followers(netlink: &Netlink, entry: &Held) -> Result<Vec<Held>, NetError> {
    if entry.secondary || entry.address.is_ipv6() {
        return Ok(Vec::new());
    }
    let follows = |held: &Held| {
        let beside = held.index == entry.index && held.prefix == entry.prefix && held.secondary;
        beside && same_subnet(held.address, entry.address, entry.prefix)
    };
    Ok(netlink.addresses().await?.into_iter().filter(follows).collect())
}

/// The routes over the interface that the kernel would not make by itself.
async fn routes_of(netlink: &Netlink, entry: &Held) -> Result<Vec<RouteMessage>, NetError> {
    let ours = |route: &RouteMessage| {
        let over = |a: &RouteAttribute| matches!(a, RouteAttribute::Oif(index) if *index == entry.index);
        route.header.protocol != RouteProtocol::Kernel
            && route.header.kind == RouteType::Unicast
            && route.attributes.iter().any(over)
    };
    Ok(netlink.routes().await?.into_iter().filter(ours).collect())
}

/// Those that went all the same; the kernel answers that the others are there.
async fn put_back(netlink: &Netlink, followers: &[Held], routes: Vec<RouteMessage>) {
    for follower in followers {
        tell_unless_there(netlink.add_again(follower).await);
    }
    // One that came from the removed address cannot come back, and must not.
    for route in routes {
        tell_unless_there(netlink.add_route(route).await);
    }
}

fn tell_unless_there(result: Result<(), NetError>) {
    match result {
        Err(error) if !error.exists() => tracing::error!("a neighbour of the removed address is missing: {error}"),
        Ok(()) | Err(_) => {}
    }
}

/// `promote_secondaries` of one interface, switched on for as long as this lives.
struct Promotion(Option<PathBuf>);

impl Promotion {
    fn on(interface: &str) -> Promotion {
        let path = PathBuf::from(format!("/proc/sys/net/ipv4/conf/{interface}/promote_secondaries"));
        match switch_on(&path) {
            Ok(true) => Promotion(Some(path)),
            Ok(false) => Promotion(None),
            Err(error) => {
                let path = path.display();
                tracing::info!(%error, "{path} cannot be set: neighbours of the address are put back afterwards");
                Promotion(None)
            }
        }
    }
}

/// Whether it was off.
fn switch_on(path: &std::path::Path) -> io::Result<bool> {
    let was_off = std::fs::read_to_string(path)?.trim() == "0";
    if was_off {
        std::fs::write(path, "1")?;
    }
    Ok(was_off)
}

impl Drop for Promotion {
    fn drop(&mut self) {
        if let Some(path) = &self.0
            && let Err(error) = std::fs::write(path, "0")
        {
            tracing::warn!(%error, "{} stays set", path.display());
        }
    }
}
