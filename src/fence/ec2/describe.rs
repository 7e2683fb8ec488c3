//! How EC2 sees an instance and a volume right now. The only ground for a verdict.

use super::super::Attempt;
use super::api::{Api, Request};
use super::words::Failure;
use super::xml::Element;

/// One instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Instance {
    /// `pending`, `running`, `stopping`, `stopped`, `shutting-down` or `terminated`.
    pub state: String,
    pub zone: String,
    /// `ebs`, or `instance-store`, which cannot be stopped.
    pub root: String,
}

/// One volume, from its own side.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// `available` or `in-use`; `creating`, `deleting`, `deleted`, `error`.
    pub status: String,
    pub zone: String,
    pub multi_attach: bool,
    pub attachments: Vec<Attachment>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Attachment {
    pub instance: String,
    /// `attaching`, `attached`, `detaching`, `busy`.
    pub status: String,
}

impl Volume {
    /// Its state in the words of EC2.
    pub fn told(&self) -> String {
        let attachments = self.attachments.iter().map(|a| format!("{} to {}", a.status, a.instance));
        match attachments.collect::<Vec<_>>()[..] {
            [] => format!("{}, no attachment", self.status),
            ref some => format!("{}, {}", self.status, some.join(", ")),
        }
    }

    /// The entry of this instance, if it has one. Several are one as long as any is there.
    pub fn attached_to(&self, instance: &str) -> Option<&Attachment> {
        self.attachments.iter().find(|a| a.instance == instance)
    }
}

pub fn instance_request(id: &str) -> Request {
    Request::new("DescribeInstances", id).with("InstanceId.1", id)
}

pub fn volume_request(id: &str) -> Request {
    Request::new("DescribeVolumes", id).with("VolumeId.1", id)
}

pub async fn instance(api: &Api, id: &str, attempt: &Attempt) -> Result<Instance, Failure> {
    let root = api.call(&instance_request(id), attempt).await?;
    let instances = root.items("reservationSet").flat_map(|reservation| reservation.items("instancesSet"));
    let item = only(instances.collect(), "instanceId", id)?;
    Ok(Instance {
        state: item.at(&["instanceState", "name"]).to_owned(),
        zone: item.at(&["placement", "availabilityZone"]).to_owned(),
        root: item.at(&["rootDeviceType"]).to_owned(),
    })
}

pub async fn volume(api: &Api, id: &str, attempt: &Attempt) -> Result<Volume, Failure> {
    let root = api.call(&volume_request(id), attempt).await?;
    volume_of(only(root.items("volumeSet").collect(), "volumeId", id)?)
}

fn volume_of(item: &Element) -> Result<Volume, Failure> {
    // Where the whole list is missing, nobody said that there is no attachment.
    if item.child("attachmentSet").is_none() {
        return Err(Failure::NoAnswer("the answer does not tell the attachments of the volume".to_owned()));
    }
    let attachment = |item: &Element| Attachment {
        instance: item.at(&["instanceId"]).to_owned(),
        status: item.at(&["status"]).to_owned(),
    };
    Ok(Volume {
        status: item.at(&["status"]).to_owned(),
        zone: item.at(&["availabilityZone"]).to_owned(),
        multi_attach: item.at(&["multiAttachEnabled"]) == "true",
        attachments: item.items("attachmentSet").map(attachment).collect(),
    })
}

/// The one thing that was asked for. An answer about another one belongs to another question.
fn only<'a>(items: Vec<&'a Element>, key: &str, id: &str) -> Result<&'a Element, Failure> {
    match items[..] {
        [item] if item.at(&[key]) == id => Ok(item),
        [item] => Err(Failure::NoAnswer(format!("the answer is about {}, not {id}", item.at(&[key])))),
        [] => Err(Failure::NoAnswer(format!("the answer knows no {id}"))),
        [_, _, ..] => Err(Failure::NoAnswer(format!("the answer is about more than {id}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(text: &str) -> Element {
        Element::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_volume_whose_attachments_are_not_told_is_not_one_without() {
        assert!(volume_of(&item("<item><status>available</status></item>")).is_err());
        let volume = volume_of(&item("<item><status>available</status><attachmentSet/></item>")).unwrap();
        assert_eq!(volume.told(), "available, no attachment");
    }

    #[test]
    fn an_answer_about_something_else_is_none() {
        let (mine, other) =
            (item("<item><volumeId>vol-1</volumeId></item>"), item("<item><volumeId>vol-2</volumeId></item>"));
        assert!(only(vec![&mine], "volumeId", "vol-1").is_ok());
        for wrong in [vec![&other], vec![], vec![&mine, &other]] {
            assert!(only(wrong, "volumeId", "vol-1").is_err());
        }
    }
}
