//! A primary whose peer is gone.

use leasehold::core::Standing;

use super::{HERON, Pair, available};

/// A resource above it did not start, and all was stopped again: nobody else could serve, and no data are newer.
#[tokio::test]
async fn a_lone_primary_that_was_stopped_may_start_again_and_one_that_was_succeeded_may_not() {
    if !available("a_lone_primary_that_was_stopped_may_start_again_and_one_that_was_succeeded_may_not") {
        return;
    }
    let pair = Pair::new();
    pair.group(HERON).set_standing(Standing::Sole);
    pair.start(HERON, 2).await.unwrap();
    pair.stop(HERON).await;
    pair.group(HERON).readiness().await.expect("it is alone, and was the last to act");
    for standing in [Standing::Paired, Standing::Out] {
        pair.group(HERON).set_standing(standing);
        assert!(pair.why_not_ready(HERON).await.contains("does not run"));
    }
    pair.group(HERON).set_standing(Standing::Sole);
    pair.start(HERON, 4).await.unwrap();
    pair.stop(HERON).await;
}
