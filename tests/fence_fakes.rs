//! The IPMI agent against programs that stand in for ipmitool and play BMCs that no simulator offers
//! (casebook C01, C02, C04, C05, C34). Times are the casebook's, shortened by twenty.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use leasehold::config::{IpmiAgent, SecretSource};
use leasehold::core::{AgentSet, FenceResult, PowerReading, Scope, Span, Token};
use leasehold::fence::{Entry, FenceError, FencePlan, Ipmi, Order, Report, Secret};

/// The words of ipmitool 1.8.19.
const PRELUDE: &str = r#"#!/bin/bash
cd "$(dirname "$0")"
echo "$*" >> argv; env > environment; cat > received; mv received password
while [ $# -gt 3 ]; do [ "$1" = -C ] && suite=$2; shift; done
verb=$3; now=$(date +%s%3N)
is() { echo "Chassis Power is $1"; exit 0; }
ok() { [ -e since ] || echo $now > since; echo off >> commands; echo "Chassis Power Control: Down/Off"; exit 0; }
no() { echo off >> commands; echo "Set Chassis Power Control to Down/Off failed: $1" >&2; exit 1; }
lost() { echo "$1" >&2; echo "Error: Unable to establish IPMI v2 / RMCP+ session" >&2; exit 1; }
after() { [ -e since ] && [ $((now - $(cat since))) -ge $1 ]; }
"#;

struct Fake(tempfile::TempDir);

impl Fake {
    /// `script` goes on where the prelude ends, with `$verb` and `$suite` set.
    fn new(script: &str) -> Fake {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ipmitool");
        fs::write(&path, [PRELUDE, script].concat()).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        Fake(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn lines(&self, name: &str) -> usize {
        fs::read_to_string(self.path(name)).unwrap_or_default().lines().count()
    }

    fn agent(&self, limit: Span, password: &[u8], suite: Option<u8>) -> Result<Ipmi, FenceError> {
        let config = IpmiAgent {
            address: "192.0.2.7".to_owned(),
            port: 623,
            user: "admin".to_owned(),
            password: SecretSource::File(self.path("unused")),
            cipher_suite: suite,
            privilege: "ADMINISTRATOR".to_owned(),
            stable_reads: 3,
            independent_power: false,
            poll: Span::from_ms(50),
        };
        Ipmi::with_program("bmc", Scope::Node, limit, &config, Secret::new(password.to_vec()), self.path("ipmitool"))
    }

    fn plan(&self, limit: Span, suite: Option<u8>) -> FencePlan {
        let agent = Arc::new(self.agent(limit, b"M4RK-kelp-77", suite).unwrap());
        FencePlan::of(
            vec![Entry { index: 0, name: "bmc".to_owned(), level: 1, limit: limit.into(), agent }],
            Vec::new(),
        )
    }

    async fn off(&self, limit: Span) -> Report {
        self.plan(limit, Some(3)).off(&order()).await
    }
}

fn order() -> Order {
    Order { token: Token(4), take: None, excluded: AgentSet::EMPTY, deadline_after: Duration::from_secs(60) }
}

const LIMIT: Span = Span::from_secs(15);
const CONFIRMED: FenceResult = FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(1) };

fn told(report: &Report) -> String {
    report.evidence.iter().map(|e| format!("{} -> {} ({}x)\n", e.sent, e.read, e.times)).collect()
}

#[tokio::test]
async fn c01_off_already_is_confirmed_though_the_device_would_refuse() {
    let fake = Fake::new("[ $verb = status ] && is off; no 'Command not supported in present state'");
    let report = fake.off(LIMIT).await;
    assert_eq!((report.result, fake.lines("commands")), (CONFIRMED, 0), "{}", told(&report));
}

#[tokio::test]
async fn c01_a_hand_on_the_button_between_reading_and_command_ends_confirmed() {
    let script =
        "[ $verb = status ] && { [ -e commands ] && is off || is on; }; no 'Command not supported in present state'";
    let fake = Fake::new(script);
    let report = fake.off(LIMIT).await;
    assert_eq!((report.result, fake.lines("commands")), (CONFIRMED, 1), "{}", told(&report));
    assert!(told(&report).contains("not supported in present state"), "the record holds what was said");
}

#[tokio::test]
async fn c01_a_refusal_with_the_machine_on_is_refused_with_the_devices_words() {
    let fake = Fake::new("[ $verb = status ] && is on; no 'Insufficient privilege level'");
    let report = fake.off(LIMIT).await;
    assert_eq!(report.result, FenceResult::Refused { highest: None });
    assert!(told(&report).contains("Insufficient privilege level"), "{}", told(&report));
}

#[tokio::test]
async fn c02_slow_off_is_confirmed_when_it_is_read_and_not_before() {
    let fake = Fake::new("[ $verb = status ] && { after 2050 && is off || is on; }; ok");
    let report = fake.off(LIMIT).await;
    assert_eq!((report.result, fake.lines("commands")), (CONFIRMED, 1), "{}", told(&report));
    let since: u64 = fs::read_to_string(fake.path("since")).unwrap().trim().parse().unwrap();
    let now = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_millis() as u64;
    assert!(now - since >= 2050);
}

#[tokio::test]
async fn c02_a_dropped_off_is_unknown_at_the_deadline_and_tried_again_next_turn() {
    let fake = Fake::new("[ $verb = status ] && is on; ok");
    for turn in 1..=2 {
        let report = fake.off(Span::from_ms(1500)).await;
        assert_eq!((report.result, fake.lines("commands")), (FenceResult::Unknown, turn), "{}", told(&report));
    }
}

#[tokio::test]
async fn c02_one_off_that_flips_back_is_not_confirmed() {
    // One reading of off, whenever it comes, then on again for good.
    let script =
        "[ $verb = status ] && { [ -e commands ] && [ ! -e flipped ] && { touch flipped; is off; }; is on; }; ok";
    let report = Fake::new(script).off(Span::from_ms(2000)).await;
    assert_eq!(report.result, FenceResult::Unknown, "{}", told(&report));
    assert!(told(&report).contains("Chassis Power is off (1x)"), "{}", told(&report));
}

#[tokio::test]
async fn c02_too_short_a_limit_is_unknown_and_a_later_status_completes_it_without_a_command() {
    let fake = Fake::new("[ $verb = status ] && { [ -e done ] && is off || is on; }; ok");
    assert_eq!(fake.off(Span::from_ms(1000)).await.result, FenceResult::Unknown);
    fs::write(fake.path("done"), "").unwrap();
    assert_eq!(
        fake.plan(LIMIT, Some(3)).probe(AgentSet::EMPTY).await.0,
        PowerReading::Off { verified_by: AgentSet(1) }
    );
    assert_eq!((fake.off(LIMIT).await.result, fake.lines("commands")), (CONFIRMED, 1));
}

#[tokio::test]
async fn c04_four_bmcs_each_end_confirmed_with_the_suite_that_works() {
    let machine = "[ $verb = status ] && { [ -e commands ] && is off || is on; }; ok";
    let (only_3, only_17) = ("[ $suite = 3 ] || ", "[ $suite = 17 ] || ");
    for (name, first, suite) in [
        ("A", format!("{only_3} lost 'Error in open session response message : no matching cipher suite'"), 3),
        ("B", format!("[ $suite ] || sleep 10; {only_3} sleep 10; echo 'Unable to Get Channel Cipher Suites'"), 3),
        ("C", format!("{only_17} lost 'Error in open session response message : invalid integrity algorithm'"), 17),
        ("D", format!("{only_3} lost 'Set Session Privilege Level to ADMINISTRATOR failed'"), 3),
    ] {
        let fake = Fake::new(&[&first, "\n", machine].concat());
        let agent = Arc::new(fake.agent(Span::from_secs(12), b"x", None).unwrap());
        let entry =
            Entry { index: 0, name: name.to_owned(), level: 1, limit: Duration::from_secs(12), agent: agent.clone() };
        let report = FencePlan::of(vec![entry], Vec::new()).off(&order()).await;
        assert_eq!(report.result, CONFIRMED, "BMC {name}: {}", told(&report));
        assert_eq!(agent.cipher_suite(), Some(suite), "BMC {name}");
        let argv = fs::read_to_string(fake.path("argv")).unwrap();
        assert!(argv.lines().all(|l| l.contains("-C 17 ") || l.contains("-C 3 ")), "{argv}");
        assert!(argv.lines().filter(|l| !l.contains(&format!("-C {suite} "))).count() <= 1, "{argv}");
    }
}

#[tokio::test]
async fn c04_a_pinned_suite_is_used_as_is_and_suite_0_never() {
    let fake = Fake::new("lost 'Error in open session response message : no matching cipher suite'");
    let report = fake.plan(Span::from_ms(1000), Some(17)).off(&order()).await;
    assert_eq!(report.result, FenceResult::Unknown);
    let argv = fs::read_to_string(fake.path("argv")).unwrap();
    assert!(argv.lines().all(|l| l.contains("-C 17 ")), "{argv}");
    assert!(matches!(fake.agent(LIMIT, b"x", Some(0)), Err(FenceError::NoCipher { .. })));
}

#[tokio::test]
async fn c05_passwords_arrive_byte_for_byte_or_are_refused_beforehand() {
    let passwords =
        ["kelp#reef$1 'x", "\"barnacle\"", " edge blanks ", "#sandbar", "a=b=c", "größe", "exactly-twenty-byte!"];
    for password in passwords {
        let fake = Fake::new("is off");
        let agent = Arc::new(fake.agent(LIMIT, password.as_bytes(), Some(3)).unwrap());
        let entry = Entry { index: 0, name: "bmc".to_owned(), level: 1, limit: Duration::from_secs(15), agent };
        assert_eq!(FencePlan::of(vec![entry], Vec::new()).off(&order()).await.result, CONFIRMED);
        assert_eq!(fs::read(fake.path("password")).unwrap(), password.as_bytes());
    }
    let fake = Fake::new("is off");
    let error = fake.agent(LIMIT, b"twenty-one-bytes-long", Some(3)).unwrap_err();
    assert!(error.to_string().contains("21 bytes") && error.to_string().contains("at most 20"), "{error}");
    let error = fake.agent(LIMIT, b"two\nlines", Some(3)).unwrap_err();
    assert!(error.to_string().contains("a line break"), "{error}");
    assert!(!fake.path("argv").exists());
}

#[tokio::test]
async fn c34_no_spelling_of_the_password_is_in_argv_environment_or_evidence() {
    let echoing =
        "lost \"BMC says: login admin/$(cat password) $(base64 < password) $(od -An -tx1 password | tr -d ' \\n')\"";
    let fake = Fake::new(echoing);
    let plan = fake.plan(Span::from_ms(1000), Some(3));
    let report = plan.off(&order()).await;
    let seen = [
        fs::read_to_string(fake.path("argv")).unwrap(),
        fs::read_to_string(fake.path("environment")).unwrap(),
        told(&report),
        format!("{report:?} {plan:?}"),
    ];
    for text in seen {
        for marker in ["M4RK", "TTRSSy1rZWxw", "4d34524b"] {
            assert!(!text.contains(marker), "{marker} in {text}");
        }
    }
    assert!(told(&report).contains("<secret>"), "{}", told(&report));
    assert_eq!(fs::read(fake.path("password")).unwrap(), b"M4RK-kelp-77");
    let environment = fs::read_to_string(fake.path("environment")).unwrap();
    assert!(environment.contains("LC_ALL=C") && !environment.contains("CARGO"), "{environment}");
}

#[tokio::test]
async fn a_hanging_agent_costs_its_own_limit_and_the_next_level_is_reached() {
    let (hanging, good) = (Fake::new("sleep 30"), Fake::new("is off"));
    let entry = |index, level, fake: &Fake, limit: Span| {
        let agent = Arc::new(fake.agent(limit, b"x", Some(3)).unwrap());
        Entry { index, name: format!("bmc{index}"), level, limit: limit.into(), agent }
    };
    let plan = FencePlan::of(vec![entry(0, 1, &hanging, Span::from_ms(600)), entry(1, 2, &good, LIMIT)], Vec::new());
    let report = plan.off(&order()).await;
    assert_eq!(report.result, FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(2) });
    assert!(told(&report).contains("given up after its limit of 600ms"), "{}", told(&report));
}

#[tokio::test]
async fn the_plans_deadline_ends_everything_and_leaves_the_evidence() {
    let fake = Fake::new("[ $verb = status ] && is on; ok");
    let order = Order { deadline_after: Duration::from_millis(800), ..order() };
    let report = fake.plan(LIMIT, Some(3)).off(&order).await;
    assert_eq!(report.result, FenceResult::Unknown);
    assert!(told(&report).contains("Chassis Power is on"), "{}", told(&report));
}
