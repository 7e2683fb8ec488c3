//! `leasehold man DIR`: one page for the program and one for each subcommand, for the packages.

use std::fs;
use std::path::Path;

use anyhow::Context;
use clap::{Command, CommandFactory};

use super::args::Args;
use super::exit::Exit;

pub fn run(directory: &Path) -> anyhow::Result<Exit> {
    let mut root = Args::command();
    root.build();
    write_page(directory, root.clone(), "leasehold")?;
    for command in root.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        write_page(directory, command.clone(), &format!("leasehold-{}", command.get_name()))?;
    }
    Ok(Exit::Fine)
}

fn write_page(directory: &Path, command: Command, name: &str) -> anyhow::Result<()> {
    let version = env!("CARGO_PKG_VERSION");
    let page = clap_mangen::Man::new(command)
        .title(name.to_uppercase())
        .section("8")
        .source(format!("leasehold {version}"))
        .manual("leasehold");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let path = directory.join(format!("{name}.8"));
    fs::write(&path, text).with_context(|| format!("man page {}", path.display()))
}
