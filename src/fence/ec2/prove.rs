//! What both kinds look at long before a fence: permission by dry run, the life of the keys, who this node is.

use super::super::{Attempt, Health};
use super::api::{Api, Request};

/// Tries an action without doing it; `Some` says why EC2 would not.
pub async fn denied(api: &Api, request: Request, attempt: &Attempt) -> Option<String> {
    let request = request.dry();
    let (text, fault) = match api.call(&request, attempt).await {
        Ok(_) => {
            let text = format!("{request}: carried out instead of only tried; this service must not be used");
            (text.clone(), Some(text))
        }
        Err(failure) => match failure.code() {
            Some("DryRunOperation") => ("allowed".to_owned(), None),
            // The permission was looked at first; what is in the way is the state of now.
            Some(code)
                if code.starts_with("Incorrect") || code == "VolumeInUse" || code.starts_with("InvalidAttachment") =>
            {
                (format!("allowed, though not now: {}", failure.text()), None)
            }
            Some(_) | None => (failure.text().to_owned(), Some(format!("{request}: {}", failure.text()))),
        },
    };
    attempt.note(&request.to_string(), &text);
    fault
}

/// Keys that end in the middle of an attempt are found before it.
pub async fn lifetime(api: &Api, attempt: &Attempt, health: Health) -> Health {
    let Some((imds, now)) = api.source.imds().zip(attempt.now()) else { return health };
    match imds.too_short(now).await {
        Some(why) => health.fault(why),
        None => health,
    }
}

/// By its metadata this node may be another instance than the file says: then "the other node" is a stranger.
pub async fn misnamed(api: &Api, named: Option<&str>, health: Health) -> Health {
    let Some((imds, named)) = api.source.imds().zip(named) else { return health };
    match imds.instance().await {
        Ok(own) if own != named => health.fault(format!("the file takes this node for {named}, but it is {own}")),
        Ok(_) => health,
        Err(why) => health.note(format!("which instance this node is, is not known: {why}")),
    }
}
