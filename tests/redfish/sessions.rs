//! Session slots (casebook C11): one at most, kept over probes, deleted in the end, and done without where there is none.

use std::time::Duration;

use leasehold::config::Trust;
use leasehold::fence::{Agent, Outcome, Reading};

use super::fake::{Act, Fake, Script};
use super::{LIMIT, PASSWORD, agent, agent_with, attempt, off, pass, prove, settings, told, two};

/// Probes of the first phase: as many as one each ten seconds in an hour.
const PROBES: u32 = 360;

/// Waits until the service holds so many sessions; what deletes them runs beside the test.
async fn held(fake: &Fake, wanted: usize) -> bool {
    for _ in 0..2000 {
        if fake.world().sessions.len() == wanted {
            return true;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    false
}

#[tokio::test]
async fn an_hour_of_probes_with_a_third_of_the_answers_cut_off_holds_one_slot_and_leaves_none() {
    let mut requests = 0_u32;
    let script: Script = Box::new(move |_, _| {
        requests += 1;
        if requests.is_multiple_of(3) { Act::Cut((requests as usize * 37) % 100) } else { Act::Pass }
    });
    let fake = Fake::plain(two(), PASSWORD, script);
    let agent = agent(&fake, LIMIT);
    for _ in 0..PROBES {
        let attempt = attempt();
        let _ = tokio::time::timeout(LIMIT, agent.status(&attempt)).await.expect("a probe ends by itself");
    }
    // From here on it answers well, so that what was lost can be found.
    fake.world().replace_script(pass());
    let read = agent.status(&attempt()).await;
    drop(agent);
    assert!(held(&fake, 0).await, "{:?} logins and sessions left", fake.logins_and_held());
    let world = fake.world();
    assert_eq!((read, world.most_held, world.refused), (Reading::On, 1, 0));
}

#[tokio::test]
async fn one_login_serves_all_probes() {
    let fake = Fake::plain(two(), PASSWORD, pass());
    let agent = agent(&fake, LIMIT);
    for _ in 0..10 {
        assert!(prove(&agent).await.0.is_good());
    }
    assert_eq!(fake.logins_and_held(), (1, 1));
    drop(agent);
    assert!(held(&fake, 0).await);
}

#[tokio::test]
async fn an_orderly_end_logs_out() {
    let fake = Fake::plain(two(), PASSWORD, pass());
    let agent = agent(&fake, LIMIT);
    assert!(prove(&agent).await.0.is_good());
    agent.close().await;
    assert_eq!(fake.logins_and_held(), (1, 0));
}

#[tokio::test]
async fn a_login_that_is_dropped_in_the_middle_is_finished_kept_and_deleted() {
    let script: Script =
        Box::new(|r, _| if r.is("POST", "/Sessions") { Act::Late(Duration::from_millis(300)) } else { Act::Pass });
    let fake = Fake::plain(two(), PASSWORD, script);
    let agent = agent(&fake, LIMIT);
    let cut = tokio::time::timeout(Duration::from_millis(100), agent.status(&attempt())).await;
    assert!(cut.is_err(), "the login was over too soon to be dropped");
    assert_eq!(agent.status(&attempt()).await, Reading::On);
    assert_eq!(fake.logins_and_held(), (1, 1));
    drop(agent);
    assert!(held(&fake, 0).await);
}

#[tokio::test]
async fn full_slots_are_told_by_a_look_and_basic_fences_all_the_same() {
    let fake = Fake::plain(two(), PASSWORD, pass());
    fake.world().slots = 0;
    let agent = agent(&fake, LIMIT);
    let (health, evidence) = prove(&agent).await;
    assert!(health.is_good(), "{health:?}\n{evidence}");
    assert!(health.notes.iter().any(|n| n.contains("no session slot") && n.contains("Basic")), "{health:?}");
    assert_eq!(off(&agent, LIMIT, &attempt()).await, Outcome::Confirmed);
    // Once a slot is free it is used.
    fake.world().slots = 8;
    assert_eq!(agent.status(&attempt()).await, Reading::Off);
    assert_eq!(fake.world().sessions.len(), 1);
}

#[tokio::test]
async fn no_slot_and_no_basic_is_a_fault() {
    let script: Script =
        Box::new(
            |r, _| {
                if r.headers.contains_key("authorization") { Act::Answer(401, String::new()) } else { Act::Pass }
            },
        );
    let fake = Fake::plain(two(), PASSWORD, script);
    fake.world().slots = 0;
    let (health, _) = prove(&agent(&fake, LIMIT)).await;
    let fault = health.faults.join("\n");
    assert!(fault.contains("no session slot") && fault.contains("Basic login is refused"), "{fault}");
}

#[tokio::test]
async fn a_token_that_ends_at_the_post_is_renewed_and_the_state_read_again_before_the_second_post() {
    let mut turned_away = false;
    let script: Script = Box::new(move |request, world| {
        if request.is("POST", "/ComputerSystem.Reset") && !turned_away {
            turned_away = true;
            world.sessions.clear();
            world.log.push("POST turned away".to_owned());
            return Act::Answer(401, String::new());
        }
        Act::Pass
    });
    let fake = Fake::plain(two(), PASSWORD, script);
    let (agent, attempt) = (agent(&fake, LIMIT), attempt());
    assert_eq!(off(&agent, LIMIT, &attempt).await, Outcome::Confirmed, "{}", told(&attempt));
    let world = fake.world();
    assert_eq!((world.logins, world.most_held), (2, 1));
    let order: Vec<_> = world.log.iter().skip_while(|l| *l != "POST turned away").map(String::as_str).collect();
    let at = |what: &str| order.iter().position(|l| l.starts_with(what)).unwrap_or(usize::MAX);
    let (login, read) = (at("POST /redfish/v1/SessionService/Sessions"), at("GET /redfish/v1/Systems/Main token"));
    let post = at("POST /redfish/v1/Systems/Main/Actions");
    assert!(login < read && read < post && post < order.len(), "{order:?}");
}

#[tokio::test]
async fn a_token_that_ends_between_probes_is_renewed_at_once() {
    let fake = Fake::plain(two(), PASSWORD, pass());
    let agent = agent(&fake, LIMIT);
    assert_eq!(agent.status(&attempt()).await, Reading::On);
    fake.world().sessions.clear();
    assert_eq!(agent.status(&attempt()).await, Reading::On);
    assert_eq!(fake.logins_and_held(), (2, 1));
}

#[tokio::test]
async fn a_service_that_turns_every_session_away_says_so_and_is_not_asked_for_ever() {
    let script: Script =
        Box::new(
            |r, _| {
                if r.headers.contains_key("x-auth-token") { Act::Answer(401, String::new()) } else { Act::Pass }
            },
        );
    let fake = Fake::plain(two(), PASSWORD, script);
    let config = settings(&fake.url(), Some("Main"), Trust::Plaintext);
    let attempt = attempt();
    let reading = agent_with(config, PASSWORD.as_bytes(), LIMIT).status(&attempt).await;
    assert_eq!((reading, fake.logins_and_held().0), (Reading::Unknown, 2), "{}", told(&attempt));
    assert!(told(&attempt).contains("turned away as well"), "{}", told(&attempt));
}
