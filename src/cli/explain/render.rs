//! The safety case for people. Pure.

use super::model::{Assumed, Bound, Case, Held, ResourceCase};
use crate::cli::page::{Page, Paint};
use crate::cli::status::woken_late;
use crate::control::Stalls;
use crate::core::Span;

/// The whole case, wrapped at `width` columns, without colour: it is meant to be read, printed and kept.
pub fn text(case: &Case, width: usize) -> String {
    let mut page = Page::new(width, false);
    let [first, second] = &case.nodes;
    page.wrapped(
        "",
        &format!("Safety case of {}: {first} and {second}, {} data", case.cluster, case.data),
        Paint::Bold,
    );
    heading(&mut page, "What safety rests on");
    page.wrapped("  ", &case.rests_on, Paint::Plain);
    case.unprotected.iter().for_each(|line| page.wrapped("  ! ", line, Paint::Plain));
    heading(&mut page, "What protects each resource");
    page.wrapped("  ", "Quorum: none. Two nodes have no majority.", Paint::Plain);
    case.resources.iter().for_each(|r| resource(&mut page, r));
    heading(&mut page, "What that assumes");
    case.assumptions.iter().for_each(|a| assumption(&mut page, a));
    heading(&mut page, "How long a take-over takes, from the crash of the primary");
    page.list(&case.bounds.iter().map(row).collect::<Vec<_>>());
    case.bounds.iter().for_each(|b| page.wrapped(&format!("    {:<12}", b.name), &b.arithmetic, Paint::Plain));
    case.lateness.iter().for_each(|stalls| lateness(&mut page, stalls));
    heading(&mut page, "Who wins a partition");
    page.wrapped("  ", &case.partition, Paint::Plain);
    heading(&mut page, "What makes both nodes act");
    case.breaks.iter().for_each(|line| page.wrapped("  - ", &format!("{line}."), Paint::Plain));
    heading(&mut page, "What stops the service by design");
    for stop in &case.stops_by_design {
        page.wrapped("  - ", &format!("{}: {}.", stop.when, stop.then), Paint::Plain);
    }
    better(&mut page, case);
    page.into_text()
}

fn heading(page: &mut Page, text: &str) {
    page.blank();
    page.wrapped("", text, Paint::Bold);
}

fn resource(page: &mut Page, resource: &ResourceCase) {
    page.wrapped("  ", &resource.name, Paint::Bold);
    for carrier in &resource.protections {
        let weight = if carrier.carries { "carries the weight" } else { "stands behind" };
        let line = format!("{} {weight} ({})", carrier.protection.words(), carrier.how);
        page.wrapped("    ", &line, Paint::Plain);
    }
    let ids: Vec<String> = resource.assumes.iter().map(ToString::to_string).collect();
    page.wrapped("    assumes ", &ids.join(" "), Paint::Plain);
    page.wrapped("    meanwhile ", &resource.meanwhile, Paint::Plain);
}

fn assumption(page: &mut Page, assumed: &Assumed) {
    let prefix = format!("  {:<4}", assumed.id.to_string());
    page.wrapped(&prefix, assumed.text, Paint::Plain);
    page.wrapped("      else: ", assumed.else_lost, Paint::Plain);
    if let (Held::NotMet, Some(because)) = (assumed.held, &assumed.because) {
        page.wrapped("      ! ", &format!("{} not met: {because}", assumed.id), Paint::Plain);
    }
}

/// Whether the margin holds what this machine really needs of it.
fn lateness(page: &mut Page, stalls: &Stalls) {
    heading(page, "How late this machine was woken, of what the margin allows");
    let allowed = Span::from_ms(stalls.allowed_ms);
    page.wrapped("  ", &format!("A node may stand still for P = {allowed} (lease.pause)."), Paint::Plain);
    let seen = [("daemon", Some(stalls.daemon)), ("guard", stalls.guard)];
    for (who, late) in seen.into_iter().filter_map(|(who, late)| Some((who, late?))) {
        page.wrapped(&format!("    {who:<12}"), &woken_late(&late), Paint::Plain);
    }
    if stalls.longest_ms * 2 >= stalls.allowed_ms {
        let line = "half of it was used already: find what stops this machine, or raise lease.pause";
        page.wrapped("  ! ", line, Paint::Plain);
    }
}

fn row(bound: &Bound) -> Vec<String> {
    let span = |ms: Option<u64>| ms.map_or("-".to_string(), |ms| Span::from_ms(ms).to_string());
    let (typical, worst) = (span(bound.typical_ms), span(bound.worst_ms));
    vec![format!("  {}", bound.name), format!("typical {typical}"), format!("worst {worst}")]
}

fn better(page: &mut Page, case: &Case) {
    if !case.better.is_empty() {
        heading(page, "What would make it better, most valuable first");
    }
    for (index, advice) in case.better.iter().enumerate() {
        page.wrapped(&format!("  {}. ", index + 1), &format!("{}.", capital(&advice.change)), Paint::Plain);
        page.wrapped("     gains: ", &advice.gains, Paint::Plain);
    }
    if !case.warnings.is_empty() {
        heading(page, "What `leasehold check` warns of");
        case.warnings.iter().for_each(|title| page.wrapped("  - ", title, Paint::Plain));
    }
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
