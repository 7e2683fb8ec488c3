//! What a fence agent says of itself: the XML of its action `metadata` (ClusterLabs, FenceAgentAPI.md).

use quick_xml::events::{BytesStart, Event};
use quick_xml::{Reader, XmlVersion};

/// An agent has some dozens of options and a dozen actions; a document with more elements is something else.
const MOST_ELEMENTS: usize = 5000;

/// One agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata {
    pub parameters: Vec<Parameter>,
    pub actions: Vec<Action>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    pub name: String,
    pub required: bool,
    pub has_default: bool,
    pub deprecated: bool,
    /// The former name that this one replaces.
    pub obsoletes: Option<String>,
    pub content: Content,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    Text,
    Boolean,
    /// A whole number, or a number of seconds.
    Number,
    OneOf(Vec<String>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Action {
    pub name: String,
    /// `automatic` or `on_target` at `on`: the agent cuts a node off from storage or network, and does not power it.
    pub fabric: bool,
}

impl Metadata {
    pub fn parameter(&self, name: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|p| p.name == name)
    }

    /// The present name of a former one.
    pub fn replaced_by(&self, former: &str) -> Option<&Parameter> {
        self.parameters.iter().find(|p| p.obsoletes.as_deref() == Some(former))
    }

    pub fn offers(&self, action: &str) -> bool {
        self.actions.iter().any(|a| a.name == action)
    }

    /// Cuts off instead of switching off.
    pub fn is_fabric(&self) -> bool {
        self.actions.iter().any(|a| a.fabric)
    }
}

/// Reads the document; the error is a sentence without the document's own text.
pub fn parse(text: &str) -> Result<Metadata, String> {
    let mut reader = Reader::from_str(text);
    let (mut metadata, mut elements, mut is_agent) = (Metadata::default(), 0, false);
    loop {
        match reader.read_event().map_err(|error| format!("its metadata are not XML: {error}"))? {
            Event::Eof => break,
            Event::Start(element) | Event::Empty(element) => {
                elements += 1;
                is_agent |= element.name().0 == "resource-agent";
                take(&element, &mut metadata)?;
            }
            _ if elements > MOST_ELEMENTS => return Err("its metadata have no end".to_owned()),
            _ => {}
        }
    }
    if is_agent && !metadata.actions.is_empty() {
        return Ok(metadata);
    }
    Err("its metadata describe no fence agent".to_owned())
}

fn take(element: &BytesStart<'_>, metadata: &mut Metadata) -> Result<(), String> {
    match element.name().0 {
        "parameter" => metadata.parameters.push(Parameter {
            name: attribute(element, "name")?.unwrap_or_default(),
            required: is_set(element, "required")?,
            has_default: false,
            deprecated: is_set(element, "deprecated")?,
            obsoletes: attribute(element, "obsoletes")?,
            content: Content::Text,
        }),
        "content" => {
            let (kind, default) = (attribute(element, "type")?, attribute(element, "default")?);
            if let Some(parameter) = metadata.parameters.last_mut() {
                parameter.content = content(kind.as_deref().unwrap_or_default());
                parameter.has_default = default.is_some();
            }
        }
        "option" => {
            let value = attribute(element, "value")?;
            if let Some(Parameter { content: Content::OneOf(choices), .. }) = metadata.parameters.last_mut() {
                choices.extend(value);
            }
        }
        "action" => metadata.actions.push(Action {
            name: attribute(element, "name")?.unwrap_or_default(),
            fabric: is_set(element, "automatic")? || is_set(element, "on_target")?,
        }),
        _ => {}
    }
    Ok(())
}

fn content(kind: &str) -> Content {
    match kind {
        "boolean" => Content::Boolean,
        "integer" | "second" => Content::Number,
        "select" => Content::OneOf(Vec::new()),
        _ => Content::Text,
    }
}

fn attribute(element: &BytesStart<'_>, name: &str) -> Result<Option<String>, String> {
    let wrong = |error: &dyn std::fmt::Display| format!("its metadata are not XML: {error}");
    let Some(found) = element.try_get_attribute(name).map_err(|error| wrong(&error))? else { return Ok(None) };
    let value = found.normalized_value(XmlVersion::Implicit1_0).map_err(|error| wrong(&error))?;
    Ok(Some(value.into_owned()))
}

fn is_set(element: &BytesStart<'_>, name: &str) -> Result<bool, String> {
    Ok(matches!(attribute(element, name)?.as_deref(), Some("1" | "true" | "yes")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const APC: &str = r#"<?xml version="1.0" ?>
<resource-agent name="fence_apc" shortdesc="APC over telnet &amp; ssh" >
<longdesc>text</longdesc>
<parameters>
  <parameter name="plug" unique="0" required="1" obsoletes="port">
    <getopt mixed="-n, --plug=[id]" /><content type="string"  /><shortdesc lang="en">Plug</shortdesc>
  </parameter>
  <parameter name="port" unique="0" required="1" deprecated="1"><content type="string" /></parameter>
  <parameter name="method" required="0"><content type="select" default="onoff" >
    <option value="onoff" /><option value="cycle" /></content></parameter>
  <parameter name="power_wait" required="0"><content type="second" default="0"  /></parameter>
  <parameter name="ssl" required="0"><content type="boolean" /></parameter>
</parameters>
<actions><action name="on" automatic="0"/><action name="off" /><action name="status" /></actions>
</resource-agent>"#;

    #[test]
    fn the_description_of_an_agent_is_read() {
        let apc = parse(APC).unwrap();
        assert!(apc.offers("status") && !apc.offers("monitor") && !apc.is_fabric());
        assert_eq!(apc.replaced_by("port").map(|p| p.name.as_str()), Some("plug"));
        let plug = apc.parameter("plug").unwrap();
        assert!(plug.required && !plug.deprecated && !plug.has_default && apc.parameter("port").unwrap().deprecated);
        let method = apc.parameter("method").unwrap();
        assert_eq!(method.content, Content::OneOf(vec!["onoff".into(), "cycle".into()]));
        assert!(method.has_default);
        assert_eq!(apc.parameter("power_wait").unwrap().content, Content::Number);
        assert_eq!(apc.parameter("ssl").unwrap().content, Content::Boolean);
    }

    #[test]
    fn an_agent_that_cuts_off_instead_of_switching_off_is_known() {
        let scsi = APC.replace("automatic=\"0\"", "on_target=\"1\" automatic=\"1\"");
        assert!(parse(&scsi).unwrap().is_fabric());
    }

    #[test]
    fn anything_else_is_no_agent() {
        for text in ["", "usage: fence [-h]", "<html></html>", "<resource-agent>", "<resource-agent/>", "<a b=c>"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
