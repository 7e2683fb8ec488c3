//! What a failover with asynchronous replication loses: told by the new primary, and exactly by the old one.

use leasehold::config::Synchronous;
use leasehold::resource::Group;
use rustix::process::Signal;

use super::{HERON, PLOVER, Pair, available, pg};

const LIMIT: u64 = 1 << 20;

/// The first number in the news of this kind.
fn bytes_told(group: &Group, kind: &str) -> u64 {
    let news = group.take_news();
    let told = news.iter().find(|news| news.kind == kind).unwrap_or_else(|| panic!("no {kind}: {news:?}"));
    println!("{}", told.text);
    let number = told.text.split(' ').find_map(|word| word.parse().ok());
    number.unwrap_or_else(|| panic!("no number: {}", told.text))
}

fn position(pair: &Pair, node: &str, function: &str) -> u64 {
    pair.sql(node, &format!("select {function}() - '0/0'::pg_lsn")).parse().unwrap()
}

#[tokio::test]
async fn the_loss_of_an_asynchronous_failover_is_measured_and_within_the_limit() {
    if !available("the_loss_of_an_asynchronous_failover_is_measured_and_within_the_limit") {
        return;
    }
    let pair = Pair::with(|config| {
        config.synchronous = Synchronous::Off;
        config.max_lag_bytes = LIMIT;
    });
    pair.whole().await;
    let receiver = || pair.sql(PLOVER, "select pid from pg_stat_wal_receiver").parse::<i32>().unwrap();

    // Beyond the limit it is no standby that could take over.
    pg::signal(receiver(), Signal::STOP);
    pair.sql(HERON, "insert into row select generate_series(1, 40000)");
    let told = pair.why_not_ready(PLOVER).await;
    assert!(told.contains("bytes behind"), "{told}");
    pg::signal(receiver(), Signal::CONT);
    pair.until_ready(PLOVER).await;

    let stopped = receiver();
    pg::signal(stopped, Signal::STOP);
    pair.sql(HERON, "insert into row select generate_series(50001, 51000)");
    let missing = position(&pair, HERON, "pg_current_wal_lsn") - position(&pair, PLOVER, "pg_last_wal_receive_lsn");
    pair.group(PLOVER).readiness().await.expect("it is within the limit");
    pair.lab.kill_all(HERON);
    // With it goes what lies in its socket.
    pg::signal(stopped, Signal::KILL);
    pair.start(PLOVER, 3).await.unwrap();
    assert_eq!(pair.sql(PLOVER, "select count(*) from row"), "40000", "rows are lost");
    let lost = bytes_told(pair.group(PLOVER), "loss");
    assert!(lost >= missing && lost <= LIMIT, "{lost} bytes told, {missing} seen");

    pair.group(PLOVER).set_standing(leasehold::core::Standing::Sole);
    pair.stop(HERON).await;
    pair.follow(HERON).await;
    let discarded = bytes_told(pair.group(HERON), "discarded");
    assert!(discarded >= missing, "{discarded} bytes told, {missing} seen");
    assert_eq!(pair.sql(HERON, "select count(*) from row"), "40000");
    assert!(pair.group(HERON).take_news().is_empty(), "each is told once");
}
