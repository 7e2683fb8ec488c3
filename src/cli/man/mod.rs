//! `leasehold man DIR`: one page for the program, one for the configuration, one for each subcommand, each kind of fence
//! agent and each kind of resource, for the packages.

mod roff;
mod settings;

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};

use super::args::Args;
use super::exit::Exit;

/// The page of each kind of agent.
const AGENTS: [(&str, &str); 12] = [
    ("ec2-power", include_str!("../../../docs/agents/ec2-power.md")),
    ("ec2-volume", include_str!("../../../docs/agents/ec2-volume.md")),
    ("exec", include_str!("../../../docs/agents/exec.md")),
    ("fence-agent", include_str!("../../../docs/agents/fence-agent.md")),
    ("ipmi", include_str!("../../../docs/agents/ipmi.md")),
    ("iscsi-acl", include_str!("../../../docs/agents/iscsi-acl.md")),
    ("manual", include_str!("../../../docs/agents/manual.md")),
    ("nfs-export", include_str!("../../../docs/agents/nfs-export.md")),
    ("openstack-power", include_str!("../../../docs/agents/openstack-power.md")),
    ("openstack-volume", include_str!("../../../docs/agents/openstack-volume.md")),
    ("redfish", include_str!("../../../docs/agents/redfish.md")),
    ("scsi-pr", include_str!("../../../docs/agents/scsi-pr.md")),
];

/// The page of each kind of resource.
const RESOURCES: [(&str, &str); 5] = [
    ("address", include_str!("../../../docs/resources/address.md")),
    ("exec", include_str!("../../../docs/resources/exec.md")),
    ("mount", include_str!("../../../docs/resources/mount.md")),
    ("postgres", include_str!("../../../docs/resources/postgres.md")),
    ("unit", include_str!("../../../docs/resources/unit.md")),
];

pub fn run(directory: &Path) -> anyhow::Result<Exit> {
    let mut root = Args::command();
    root.build();
    of_command(directory, root.clone(), "leasehold")?;
    for command in root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        of_command(directory, command.clone(), &format!("leasehold-{}", command.get_name()))?;
    }
    let settings = roff::from_markdown("leasehold.toml", 5, &settings::page(), &source());
    write(directory, "leasehold.toml.5", settings.as_bytes())?;
    of_kinds(directory, "leasehold-fence", &AGENTS)?;
    of_kinds(directory, "leasehold-resource", &RESOURCES)?;
    Ok(Exit::Fine)
}

fn of_kinds(directory: &Path, of: &str, pages: &[(&str, &str)]) -> anyhow::Result<()> {
    pages.iter().try_for_each(|(kind, page)| {
        let name = format!("{of}-{kind}");
        write(directory, &format!("{name}.7"), roff::from_markdown(&name, 7, page, &source()).as_bytes())
    })
}

fn of_command(directory: &Path, command: Command, name: &str) -> anyhow::Result<()> {
    let page = clap_mangen::Man::new(command);
    let page = page.title(name.to_uppercase()).section("8").source(source()).manual("leasehold");
    let mut text = Vec::new();
    page.render(&mut text)?;
    write(directory, &format!("{name}.8"), &text)
}

fn source() -> String {
    format!("leasehold {}", env!("CARGO_PKG_VERSION"))
}

fn write(directory: &Path, name: &str, text: &[u8]) -> anyhow::Result<()> {
    let path = directory.join(name);
    fs::write(&path, text).with_context(|| format!("man page {}", path.display()))
}
