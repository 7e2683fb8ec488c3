//! `leasehold confirm-fenced`: an operator says what no device can.
//!
//! The one command that can make both nodes act at once, if its user is wrong. So the evidence comes first, the name
//! of the node has to be typed, and the confirmation holds for the incident that was shown, not for a later one.

use std::io::{BufRead, Write};
use std::path::Path;

use super::args::ConfirmFenced;
use super::exit::Exit;
use super::page::{Page, Paint, age, terminal_width};
use super::socket;
use crate::control::{Contact, Incident, Op, Status};

pub fn run(socket: &Path, options: ConfirmFenced, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let mut client = socket::connect(socket)?;
    let status = socket::status(&mut client)?;
    let Some(incident) = &status.incident else {
        writeln!(out, "{}", nothing_to_confirm(&status))?;
        return Ok(Exit::Refused);
    };
    out.write_all(evidence(&status, incident, terminal_width()).as_bytes())?;
    let name = match options.yes_i_have_seen_it_off {
        Some(name) => name,
        None => ask(&status.peer.name, out)?,
    };
    if name != status.peer.name {
        writeln!(out, "`{name}` is not `{}`: nothing was confirmed.", status.peer.name)?;
        return Ok(Exit::Refused);
    }
    socket::accepted(client.ask(Op::ConfirmFenced { incident: incident.id, node: name })?)?;
    writeln!(out, "Confirmed. This node waits for the end of the old lease, then takes over; see `leasehold status`.")?;
    Ok(Exit::Fine)
}

fn nothing_to_confirm(status: &Status) -> String {
    let peer = &status.peer.name;
    match status.peer.contact {
        Contact::Present | Contact::Doubtful => format!("{peer} is in contact: there is nothing to confirm."),
        Contact::Never | Contact::Lost => {
            format!("No loss of {peer} is open on this node: there is nothing to confirm; see `leasehold status`.")
        }
    }
}

fn evidence(status: &Status, incident: &Incident, width: usize) -> String {
    let mut page = Page::new(width, true);
    let peer = &status.peer.name;
    let heard = status
        .peer
        .silence_ms
        .map_or("was never heard by this daemon".into(), |ms| format!("is silent for {}", age(ms)));
    page.wrapped("", &format!("Incident {}: {peer} {heard}.", incident.id), Paint::Bold);
    if let Some(said) = &status.peer.said {
        let token = said.token.map_or(String::new(), |token| format!(", token {token}"));
        page.wrapped("  ", &format!("Last it said that it was {}{token}.", said.role), Paint::Plain);
    }
    for evidence in &incident.evidence {
        let time = evidence.at.strftime("%H:%M:%S UTC");
        page.wrapped("  ", &format!("{time}  {}: {}", evidence.agent, evidence.text), Paint::Plain);
    }
    if incident.evidence.is_empty() {
        page.wrapped("  ", "No fence agent has read anything about it.", Paint::Plain);
    }
    page.blank();
    let warning = format!(
        "If {peer} still runs when you confirm, both nodes act at once and data is destroyed. Look at the machine, or \
         cut its power, now. Silence is no evidence."
    );
    page.wrapped("", &warning, Paint::Red);
    page.into_text()
}

fn ask(peer: &str, out: &mut dyn Write) -> anyhow::Result<String> {
    write!(out, "Type the name of the node that you saw to be off ({} letters): ", peer.chars().count())?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(line.trim().to_owned())
}
