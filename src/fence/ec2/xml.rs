//! The little of XML that EC2's answers need: elements, their text, nothing else.

use quick_xml::Reader;
use quick_xml::escape::resolve_predefined_entity;
use quick_xml::events::Event;

/// The deepest answer of EC2 has eight levels; more is not from there.
const MAX_DEPTH: usize = 32;

/// One element. Attributes, comments and the like are dropped.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Element {
    pub name: String,
    pub text: String,
    pub children: Vec<Element>,
}

impl Element {
    /// The root of a whole, well-formed document; `None` for anything else, half an answer included.
    pub fn parse(bytes: &[u8]) -> Option<Element> {
        let mut reader = Reader::from_str(std::str::from_utf8(bytes).ok()?);
        let mut open = vec![Element::default()];
        loop {
            match reader.read_event().ok()? {
                Event::Start(tag) if open.len() <= MAX_DEPTH => open.push(Element::named(tag.local_name().as_ref())),
                Event::Start(_) => return None,
                Event::Empty(tag) => open.last_mut()?.children.push(Element::named(tag.local_name().as_ref())),
                Event::End(_) => {
                    let done = open.pop()?;
                    open.last_mut()?.children.push(done);
                }
                Event::Text(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::CData(text) => open.last_mut()?.text.push_str(&text.xml10_content()),
                Event::GeneralRef(reference) => {
                    let text = &mut open.last_mut()?.text;
                    match reference.resolve_char_ref().ok()? {
                        Some(c) => text.push(c),
                        None => text.push_str(resolve_predefined_entity(&reference)?),
                    }
                }
                Event::Comment(_) | Event::Decl(_) | Event::PI(_) => {}
                // No answer of EC2 has one, and what it could declare is a danger.
                Event::DocType(_) => return None,
                Event::Eof => break,
            }
        }
        let mut document = open.pop().filter(|_| open.is_empty())?;
        document.children.pop().filter(|_| document.children.is_empty())
    }

    fn named(name: impl AsRef<[u8]>) -> Element {
        Element { name: String::from_utf8_lossy(name.as_ref()).into_owned(), ..Element::default() }
    }

    pub fn child(&self, name: &str) -> Option<&Element> {
        self.children.iter().find(|c| c.name == name)
    }

    /// The `item`s of a list that EC2 calls `name`.
    pub fn items<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        let lists = self.children.iter().filter(move |c| c.name == name);
        lists.flat_map(|list| list.children.iter().filter(|c| c.name == "item"))
    }

    /// The text at the end of this path, trimmed; empty where there is none.
    pub fn at(&self, path: &[&str]) -> &str {
        let end = path.iter().try_fold(self, |element, name| element.child(name));
        end.map_or("", |element| element.text.trim())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_their_text_are_found() {
        let text = "<?xml version='1.0'?>\n<a xmlns='urn:x'><b><item><c> x &amp; &#65;y </c></item><item/></b></a>";
        let root = Element::parse(text.as_bytes()).unwrap();
        assert_eq!((root.name.as_str(), root.items("b").count()), ("a", 2));
        assert_eq!(root.at(&["b", "item", "c"]), "x & Ay");
        assert_eq!(root.at(&["b", "nothing"]), "");
    }

    #[test]
    fn half_an_answer_and_garbage_are_none() {
        let deep = "<a>".repeat(1000);
        for wrong in
            ["", "x", "<a", "<a>", "<a><b></a>", "<a/><b/>", "<!DOCTYPE a [<!ENTITY x 'y'>]><a/>", "<a>&x;</a>", &deep]
        {
            assert_eq!(Element::parse(wrong.as_bytes()), None, "{wrong:.40}");
        }
        assert_eq!(Element::parse(b"<a>\xff</a>"), None);
    }
}
