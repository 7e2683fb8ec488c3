//! Every sample in the documentation is a configuration that `leasehold check` accepts, and the index names every page.
//!
//! A block marked as `toml` is a whole configuration, or tables of one: agents, links, `[fence]`. Tables are set into a
//! pair of heron and plover that lacks just them.

use std::fs;
use std::path::{Path, PathBuf};

use leasehold::config::{self, Checked, Diagnostics};

const INDEX: &str = "docs/agents/README.md";
const NODES: [&str; 2] = ["heron", "plover"];

/// The tables of a small pair without agents, each with its header.
const BASE: [(&str, &str); 5] = [
    ("[cluster]", "[cluster]\nname = \"estuary\"\nkey = \"/etc/leasehold/key\"\ndata = \"shared\"\n"),
    ("[[node]]", "[[node]]\nname = \"heron\"\n[[node]]\nname = \"plover\"\n"),
    ("[[link]]", "[[link]]\nname = \"lan\"\naddresses = { heron = \"192.0.2.1\", plover = \"192.0.2.2\" }\n"),
    ("[guard]", "[guard]\nwatchdog = \"none\"\n"),
    (
        "[[resource]]",
        "[[resource]]\nname = \"service\"\nkind = \"exec\"\nstart = [\"/bin/true\"]\nstop_timeout = \"5s\"\n",
    ),
];

/// One block of a page, with the line where it begins.
struct Block {
    place: String,
    text: String,
}

fn pages() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> =
        ["docs", "docs/agents", "docs/resources"].iter().flat_map(|folder| markdown(folder)).collect();
    pages.push("README.md".into());
    pages.sort();
    pages
}

fn markdown(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{folder}: {error}"));
    let paths = entries.map(|entry| entry.expect("a readable directory").path());
    paths.filter(|path| path.extension().is_some_and(|e| e == "md")).collect()
}

fn blocks(page: &Path) -> Vec<Block> {
    let text = fs::read_to_string(page).expect("a readable page");
    blocks_of(&page.display().to_string(), &text)
}

fn blocks_of(name: &str, text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        if line.trim() == "```toml" {
            let body = lines.by_ref().map(|(_, line)| line).take_while(|line| line.trim() != "```");
            let text = body.fold(String::new(), |text, line| text + line + "\n");
            blocks.push(Block { place: format!("{name}:{}", number + 1), text });
        }
    }
    blocks
}

fn has_table(text: &str, header: &str) -> bool {
    text.lines().any(|line| line.trim() == header)
}

/// The tables set into the pair; `companions` get a plain agent of node scope, on a level behind all others.
fn whole(text: &str, companions: &[&str]) -> String {
    let missing = BASE.iter().filter(|(header, _)| !has_table(text, header)).map(|(_, table)| *table);
    let agents = companions.iter().map(|node| {
        format!(
            "[[fence.agent]]\nname = \"companion-of-{node}\"\ntarget = \"{node}\"\nkind = \"exec\"\nscope = \"node\"\n\
             level = 9\nprogram = \"/usr/local/libexec/outlet\"\n"
        )
    });
    format!("{}\n{text}\n{}", missing.collect::<String>(), agents.collect::<String>())
}

/// As the file itself; else with a companion for the nodes that have no agent; else for both, since agents of resource
/// scope may only add to such.
fn check(block: &Block) -> Result<Checked, Diagnostics> {
    let without: Vec<&str> =
        NODES.into_iter().filter(|node| !block.text.contains(&format!("target = \"{node}\""))).collect();
    let first = config::parse(&block.place, &whole(&block.text, &[]));
    let others = [&without[..], &NODES[..]];
    let tried = others.into_iter().map(|companions| config::parse(&block.place, &whole(&block.text, companions)));
    first.or_else(|why| tried.into_iter().find_map(Result::ok).ok_or(why))
}

#[test]
fn every_sample_of_the_documentation_is_accepted() {
    let (mut seen, mut wrong) = (0, String::new());
    for block in pages().iter().flat_map(|page| blocks(page)) {
        seen += 1;
        if let Err(diagnostics) = check(&block) {
            wrong += &format!("{}:\n{diagnostics}\n", block.place);
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
    assert!(seen > 0, "no sample was found: the pages were looked for in the wrong place");
}

#[test]
fn a_page_of_a_kind_of_agent_has_a_sample_of_it_for_both_nodes() {
    for page in kinds() {
        let kind = kind(&page);
        let line = format!("kind = \"{kind}\"");
        let of_kind: Vec<Block> = blocks(&page).into_iter().filter(|b| b.text.contains(&line)).collect();
        assert!(!of_kind.is_empty(), "{}: no block of TOML has {line}", page.display());
    }
}

#[test]
fn the_index_leads_to_every_page_and_no_link_of_it_is_dead() {
    let index = fs::read_to_string(INDEX).expect("the index");
    for page in kinds() {
        let link = format!("({}.md)", kind(&page));
        assert!(index.contains(&link), "{INDEX} has no link {link}");
    }
    let links = index.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    for link in links.filter(|link| !link.starts_with("http") && !link.starts_with('#')) {
        let path = Path::new("docs/agents").join(link.split('#').next().unwrap_or_default());
        assert!(path.exists(), "{INDEX}: {link} leads nowhere");
    }
}

#[test]
fn the_index_has_a_row_for_every_kind_that_the_configuration_knows() {
    let index = fs::read_to_string(INDEX).expect("the index");
    for kind in known_kinds() {
        assert!(index.lines().any(|l| l.starts_with("| ") && l.contains(&format!("`{kind}`"))), "no row for {kind}");
    }
}

/// The configuration itself tells them, to whoever misspells one.
fn known_kinds() -> Vec<String> {
    let wrong = "[[fence.agent]]\nname = \"x\"\ntarget = \"heron\"\nkind = \"zzzz\"\n";
    let told = config::parse("kinds", &whole(wrong, &NODES)).expect_err("there is no such kind").to_string();
    let line = told.lines().find(|line| line.contains("`fence.agent.kind` is not")).unwrap_or_else(|| panic!("{told}"));
    let kinds: Vec<String> = line.split('"').skip(1).step_by(2).map(str::to_owned).collect();
    assert!(kinds.len() > 10, "{line}");
    kinds
}

fn kinds() -> Vec<PathBuf> {
    markdown("docs/agents").into_iter().filter(|page| page != Path::new(INDEX)).collect()
}

fn kind(page: &Path) -> String {
    page.file_stem().expect("a page has a name").to_string_lossy().into_owned()
}

// --- the rules above can fail --------------------------------------------------------------------------------------

#[test]
fn a_sample_with_a_misspelt_key_is_refused() {
    let sample = |key: &str| Block {
        place: "page:1".to_owned(),
        text: format!(
            "[[fence.agent]]\nname = \"a\"\ntarget = \"heron\"\nkind = \"exec\"\nscope = \"node\"\n{key} = \"/bin/x\"\n"
        ),
    };
    assert!(check(&sample("program")).is_ok());
    let told = check(&sample("programm")).expect_err("misspelt").to_string();
    assert!(told.contains("programm"), "{told}");
}

#[test]
fn blocks_of_toml_are_found_and_others_are_not() {
    let text = "# Page\n```toml\na = 1\n```\nthen\n```sh\nrm\n```\n  ```toml\n  b = 2\n  ```\n";
    let found = blocks_of("page", text);
    let found: Vec<_> = found.iter().map(|b| (b.place.as_str(), b.text.as_str())).collect();
    assert_eq!(found, [("page:2", "a = 1\n"), ("page:9", "  b = 2\n")]);
}
