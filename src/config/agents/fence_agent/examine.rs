//! The options of the file against what the agent says of itself.

use super::super::super::diagnostics::Finding;
use super::super::super::suggest;
use super::metadata::{Content, Metadata, Parameter};
use super::{FenceAgent, Given, Value};
use crate::core::Scope;

/// What an agent must be able to do: without a separate reading nothing is ever proven.
const NEEDED: [&str; 2] = ["off", "status"];

/// What came of it.
#[derive(Debug, Clone)]
pub struct Examined {
    /// For each option of the file, in its order, the name that is sent.
    pub names: Vec<String>,
    /// Sent as well, because the agent's default may be another.
    pub also: Vec<(&'static str, &'static str)>,
    pub findings: Vec<Finding>,
}

/// Compares them. With an error among the findings the agent must not be used.
pub fn examine(agent: &FenceAgent, scope: Scope, metadata: &Metadata) -> Examined {
    let mut examined = Examined { names: Vec::new(), also: Vec::new(), findings: Vec::new() };
    for option in &agent.options {
        let name = present_name(agent, option, metadata, &mut examined.findings);
        examined.names.push(name);
    }
    let findings = &mut examined.findings;
    require_actions(agent, metadata, findings);
    require_options(agent, &examined.names, metadata, findings);
    require_aim(agent, &examined.names, metadata, findings);
    refuse_fabric_for_node(agent, scope, metadata, findings);
    warn_of_argv(agent, metadata, findings);
    if only_onoff(agent, &examined.names, metadata, findings) {
        examined.also.push(("method", "onoff"));
    }
    examined
}

/// Checks one option; the name that the agent knows it by today.
fn present_name(agent: &FenceAgent, option: &Given, metadata: &Metadata, findings: &mut Vec<Finding>) -> String {
    let Some(parameter) = metadata.parameter(&option.name) else {
        findings.push(unknown(agent, option, metadata));
        return option.name.clone();
    };
    let present = metadata.replaced_by(&option.name).filter(|_| parameter.deprecated);
    if let Some(present) = present {
        findings.push(former(agent, option, present));
    }
    let parameter = present.unwrap_or(parameter);
    findings.extend(wrong_value(option, parameter));
    parameter.name.clone()
}

fn unknown(agent: &FenceAgent, option: &Given, metadata: &Metadata) -> Finding {
    let name = option.name.escape_debug();
    let finding = Finding::error(format!("{} has no option `{name}`", agent.word()));
    let finding = finding.at(&option.place, "unknown to the agent");
    let finding = finding.note("it would ignore this and go on with a default, or with another device");
    let known = || metadata.parameters.iter().filter(|p| !p.deprecated).map(|p| p.name.as_str());
    finding.help(match suggest::closest(&option.name, known()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("`{} -o metadata` lists its options", agent.word()),
    })
}

/// An old name goes on working, unless it stands beside the new one: which of the two would be meant?
fn former(agent: &FenceAgent, option: &Given, present: &Parameter) -> Finding {
    let (old, new) = (&option.name, &present.name);
    if let Some(both) = agent.options.iter().find(|o| o.name == *new) {
        let finding = Finding::error(format!("`{old}` is the former name of `{new}`, and both are given"));
        let finding = finding.at(&option.place, "the former name").with(&both.place, "the present one");
        return finding.help(format!("keep `{new}`"));
    }
    let finding = Finding::warning(format!("`{old}` is a former name of the option `{new}`"));
    finding.at(&option.place, "is sent under its present name").help(format!("write `{new}`"))
}

/// The agents ignore a value that they cannot use, and go on with the default.
fn wrong_value(option: &Given, parameter: &Parameter) -> Option<Finding> {
    let Value::Plain(text) = &option.value else { return None };
    let is_one_of = |words: &[&str]| words.iter().any(|word| word.eq_ignore_ascii_case(text));
    let (right, wanted) = match &parameter.content {
        Content::Text => return None,
        Content::Boolean => {
            (is_one_of(&["1", "yes", "on", "true", "0", "no", "off", "false"]), "write \"1\" or \"0\"".to_owned())
        }
        Content::Number => (text.parse::<i64>().is_ok(), "write a whole number, without a unit".to_owned()),
        Content::OneOf(choices) => {
            let choices: Vec<&str> = choices.iter().map(String::as_str).collect();
            (is_one_of(&choices), format!("the agent takes {}", suggest::list(choices)))
        }
    };
    (!right).then(|| {
        let finding = Finding::error(format!("the agent does not understand this value of `{}`", option.name));
        finding.at(&option.place, format!("{:?}", text)).help(wanted)
    })
}

fn require_actions(agent: &FenceAgent, metadata: &Metadata, findings: &mut Vec<Finding>) {
    for action in NEEDED.into_iter().filter(|action| !metadata.offers(action)) {
        let finding = Finding::error(format!("{} has no action `{action}`", agent.word()));
        let finding = finding.at(&agent.place, "cannot fence, or cannot prove it");
        findings.push(finding.help("take another agent; an `off` that cannot be read back proves nothing"));
    }
}

fn require_options(agent: &FenceAgent, names: &[String], metadata: &Metadata, findings: &mut Vec<Finding>) {
    let needed = |p: &&Parameter| p.required && !p.deprecated && !p.has_default && p.name != "action";
    let missing = metadata.parameters.iter().filter(needed).filter(|p| !names.contains(&p.name));
    findings.extend(missing.map(|p| absent(agent, &p.name, "the agent requires it")));
}

fn absent(agent: &FenceAgent, name: &str, why: &str) -> Finding {
    let finding = Finding::error(format!("the option `{name}` of {} is missing", agent.word()));
    finding.at(&agent.place, why).help(format!("add `{name}` to `options`"))
}

/// Which outlet, machine or system is meant. An agent that is not told takes one by itself.
fn require_aim(agent: &FenceAgent, names: &[String], metadata: &Metadata, findings: &mut Vec<Finding>) {
    let has = |name: &str| names.iter().any(|n| n == name);
    let declared = |name: &str| metadata.parameter(name).is_some();
    if declared("systems_uri") && !has("systems_uri") {
        findings.push(absent(agent, "systems_uri", "without it the agent takes a system by its place in a list"));
    }
    let required = metadata.parameter("plug").is_some_and(|p| p.required);
    // Where a plug may stand for the address, it names the device and not a part of it.
    let (plug, by_address) = (declared("plug"), declared("port_as_ip"));
    let named = has("plug") || (declared("key") && has("key"));
    if plug && !required && !by_address && !named {
        findings.push(absent(agent, "plug", "which outlet or machine is meant?"));
    }
    if by_address && declared("ip") && !has("ip") && !(has("plug") && has("port_as_ip")) {
        findings.push(absent(agent, "ip", "which device is meant?"));
    }
}

/// A node that is cut off from its storage still runs, still answers, and can fence back (protocol section 1).
fn refuse_fabric_for_node(agent: &FenceAgent, scope: Scope, metadata: &Metadata, findings: &mut Vec<Finding>) {
    if scope == Scope::Resource || !metadata.is_fabric() {
        return;
    }
    let finding = Finding::error(format!("{} does not switch a node off", agent.word()));
    let finding = finding.at(&agent.place, "it cuts the node off from storage or network");
    findings.push(finding.help("write `scope = \"resource\"`: the node still runs after it"));
}

fn warn_of_argv(agent: &FenceAgent, metadata: &Metadata, findings: &mut Vec<Finding>) {
    let password = agent.options.iter().find(|o| matches!(o.name.as_str(), "password" | "passwd" | "hexadecimal_kg"));
    let Some(password) = password.filter(|_| metadata.parameter("ipmitool_path").is_some()) else { return };
    let finding = Finding::warning(format!("{} shows this secret to every user of the machine", agent.word()));
    let finding = finding.at(&password.place, "it hands it to ipmitool among its arguments");
    findings.push(finding.help("write `kind = \"ipmi\"`, which does not, and is several times as fast"));
}

/// `cycle` leaves the machine on; whether the agent has a choice that must be fixed.
fn only_onoff(agent: &FenceAgent, names: &[String], metadata: &Metadata, findings: &mut Vec<Finding>) -> bool {
    let offered = |p: &Parameter| matches!(&p.content, Content::OneOf(all) if all.iter().any(|c| c == "onoff"));
    if !metadata.parameter("method").is_some_and(offered) {
        return false;
    }
    let Some(place) = names.iter().position(|name| name == "method") else { return true };
    let option = &agent.options[place];
    if !matches!(&option.value, Value::Plain(text) if text.eq_ignore_ascii_case("onoff")) {
        let finding = Finding::error("`method` must be \"onoff\"").at(&option.place, "would leave the machine on");
        findings.push(finding.help("write \"onoff\", or leave it out"));
    }
    false
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::super::super::diagnostics::Severity;
    use super::super::metadata::Action;
    use super::*;
    use crate::config::SecretSource;
    use crate::core::Span;

    fn parameter(name: &str) -> Parameter {
        let content = Content::Text;
        let (required, has_default, deprecated, obsoletes) = (false, false, false, None);
        Parameter { name: name.to_owned(), required, has_default, deprecated, obsoletes, content }
    }

    fn metadata(parameters: Vec<Parameter>) -> Metadata {
        let action = |name: &str| Action { name: name.to_owned(), fabric: false };
        Metadata { parameters, actions: ["off", "on", "status", "monitor"].map(action).into() }
    }

    /// A power switch with outlets, whose options once had other names.
    fn outlets() -> Metadata {
        let plug = Parameter { required: true, obsoletes: Some("port".into()), ..parameter("plug") };
        let port = Parameter { required: true, deprecated: true, ..parameter("port") };
        let wait = Parameter { content: Content::Number, has_default: true, required: true, ..parameter("power_wait") };
        let method = Content::OneOf(vec!["onoff".into(), "cycle".into()]);
        let method = Parameter { content: method, ..parameter("method") };
        let ssl = Parameter { content: Content::Boolean, ..parameter("ssl") };
        metadata(vec![parameter("ip"), plug, port, wait, method, ssl, parameter("password")])
    }

    fn agent(options: &[(&str, &str)]) -> FenceAgent {
        let given = |(i, (name, value)): (usize, &(&str, &str))| {
            let plain = Value::Plain((*value).to_owned());
            let secret = Value::Secret(SecretSource::Credential("bmc".into()));
            let value = if *name == "password" { secret } else { plain };
            Given { name: (*name).to_owned(), value, place: 10 * i..10 * i + 5 }
        };
        FenceAgent {
            program: PathBuf::from("/usr/sbin/fence_outlet"),
            options: options.iter().enumerate().map(given).collect(),
            stable_reads: 2,
            poll: Span::from_ms(200),
            independent_power: false,
            place: 100..110,
        }
    }

    fn found(options: &[(&str, &str)], scope: Scope, metadata: &Metadata) -> (Examined, String) {
        let examined = examine(&agent(options), scope, metadata);
        let text = |f: &Finding| format!("{:?} {} [{:?}] {:?} {:?}\n", f.severity, f.title, f.place, f.notes, f.helps);
        let all = examined.findings.iter().map(text).collect();
        (examined, all)
    }

    #[test]
    fn right_options_are_taken_and_the_method_is_fixed() {
        let (examined, text) = found(&[("ip", "a"), ("plug", "3"), ("power_wait", "2")], Scope::Node, &outlets());
        assert_eq!(text, "");
        assert_eq!(examined.names, ["ip", "plug", "power_wait"]);
        assert_eq!(examined.also, [("method", "onoff")]);
    }

    #[test]
    fn a_misspelt_option_is_an_error_with_the_nearest_name() {
        let (_, text) = found(&[("plug", "3"), ("pasword", "x")], Scope::Node, &outlets());
        assert!(text.contains("no option `pasword`") && text.contains("did you mean `password`?"), "{text}");
        let (_, text) = found(&[("plug", "3"), ("zebra", "x")], Scope::Node, &outlets());
        assert!(text.contains("fence_outlet -o metadata"), "{text}");
    }

    #[test]
    fn a_former_name_is_translated_with_a_warning_and_refused_beside_the_present_one() {
        let (examined, text) = found(&[("port", "3")], Scope::Node, &outlets());
        assert_eq!(examined.names, ["plug"]);
        assert!(text.contains("Warning") && !text.contains("Error"), "{text}");
        let (_, text) = found(&[("port", "3"), ("plug", "4")], Scope::Node, &outlets());
        assert!(text.contains("Error") && text.contains("both are given"), "{text}");
    }

    #[test]
    fn what_is_required_and_has_no_default_must_be_given() {
        let (_, text) = found(&[("ip", "a")], Scope::Node, &outlets());
        assert!(text.contains("the option `plug` of fence_outlet is missing"), "{text}");
        assert!(!text.contains("power_wait"), "{text}");
    }

    #[test]
    fn the_target_must_be_named_where_the_agent_would_choose_one() {
        let systems =
            metadata(vec![parameter("ip"), parameter("systems_uri"), parameter("port_as_ip"), parameter("plug")]);
        let (_, text) = found(&[("ip", "a")], Scope::Node, &systems);
        assert!(
            text.contains("`systems_uri`") && text.contains("place in a list") && !text.contains("`plug`"),
            "{text}"
        );
        let (_, text) = found(&[("systems_uri", "/redfish/v1/Systems/1")], Scope::Node, &systems);
        assert!(text.contains("the option `ip`"), "{text}");
        let optional = metadata(vec![parameter("ip"), parameter("plug")]);
        assert!(found(&[("ip", "a")], Scope::Node, &optional).1.contains("the option `plug`"));
        let keyed = metadata(vec![parameter("plug"), parameter("key")]);
        assert_eq!(found(&[("key", "1")], Scope::Node, &keyed).1, "");
    }

    #[test]
    fn a_value_that_the_agent_would_ignore_is_refused() {
        for (name, value, help) in [
            ("power_wait", "2s", "without a unit"),
            ("ssl", "please", "\"1\" or \\\"0\\\""),
            ("method", "restart", "`onoff` and `cycle`"),
        ] {
            let (_, text) = found(&[("plug", "3"), (name, value)], Scope::Node, &outlets());
            let help = help.replace("\"1\"", "\\\"1\\\"");
            assert!(text.contains("does not understand") && text.contains(&help), "{text}");
        }
    }

    #[test]
    fn only_a_method_that_leaves_the_machine_off_is_taken() {
        let (_, text) = found(&[("plug", "3"), ("method", "cycle")], Scope::Node, &outlets());
        assert!(text.contains("`method` must be"), "{text}");
        let (examined, text) = found(&[("plug", "3"), ("method", "onoff")], Scope::Node, &outlets());
        assert!(text.is_empty() && examined.also.is_empty(), "{text}");
    }

    #[test]
    fn an_agent_without_a_status_and_one_that_only_cuts_off_do_not_prove_a_node_off() {
        let mut blind = outlets();
        blind.actions.retain(|a| a.name != "status");
        assert!(found(&[("plug", "3")], Scope::Node, &blind).1.contains("no action `status`"));
        let mut fabric = outlets();
        fabric.actions.iter_mut().for_each(|a| a.fabric = a.name == "on");
        assert!(found(&[("plug", "3")], Scope::Node, &fabric).1.contains("does not switch a node off"));
        assert_eq!(found(&[("plug", "3")], Scope::Resource, &fabric).1, "");
    }

    #[test]
    fn an_agent_that_shows_the_password_in_its_arguments_is_told_of() {
        let lan = metadata(vec![parameter("ip"), parameter("password"), parameter("ipmitool_path")]);
        let (examined, text) = found(&[("ip", "a"), ("password", "")], Scope::Node, &lan);
        assert!(text.contains("every user of the machine"), "{text}");
        assert!(examined.findings.iter().all(|f| f.severity == Severity::Warning), "{text}");
    }
}
