//! Cost of one step of the core: a renewal is three of them (the primary's timeout, the standby's answer, its arrival).
//! Aim: under 2 µs a step.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use leasehold::core::{
    BootId, DataModel, Digest, FirstShooter, Identity, Incarnation, Input, Instant, Node, NodeId, Output, Plan,
    PowerOn, PromoteAfter, Role, Settings, Span, SystemUuid,
};

const STEPS_A_RENEWAL: u64 = 3;

fn settings(me: NodeId) -> Settings {
    Settings {
        me,
        interval: Span::from_ms(250),
        dead_after: Span::from_ms(1500),
        term: Span::from_secs(10),
        margin: Span::from_secs(4),
        head_start: Span::from_secs(1),
        first_shooter: FirstShooter::Primary,
        fence_bound: Span::from_secs(2),
        settle: Span::from_secs(1),
        join_wait: Span::from_secs(5),
        join_fence: false,
        promote_after: PromoteAfter::Fence,
        plan: Plan::Node { access: false },
        stores_tokens: false,
        data: DataModel::Shared,
        leave_timeout: Span::from_secs(5),
        start_backoff: Span::from_secs(10),
        power_on: PowerOn::Never,
        digest: Digest::default(),
    }
}

fn node(me: NodeId, now: Instant) -> Node {
    let n = 1 + me.index() as u64;
    let (incarnation, boot) = (Incarnation(n), BootId([n as u8; 16]));
    let mut node =
        Node::new(settings(me), Identity { incarnation, boot, uuid: SystemUuid::default(), seed: n }, None, None, now);
    node.handle_input(Input::Readiness(true), now);
    node
}

/// Lets `nodes[i]` do what it wants, and everything that follows from it; gives the number of steps.
fn drain(nodes: &mut [Node; 2], i: usize, now: Instant) -> u64 {
    let mut steps = 0;
    while let Some(output) = nodes[i].poll_output() {
        let (to, input) = match output {
            Output::Send(datagram) => (1 - i, Input::Datagram(datagram)),
            Output::Persist { generation, .. } => (i, Input::Persisted(generation)),
            Output::StartResources { epoch, .. } => (i, Input::ResourcesStarted(epoch)),
            Output::StopResources { epoch, .. } => (i, Input::ResourcesStopped(epoch)),
            _ => continue,
        };
        nodes[to].handle_input(input, now);
        steps += 1 + if to == i { 0 } else { drain(nodes, to, now) };
    }
    steps
}

/// A pair with a primary and an admitted standby.
fn pair(now: &mut Instant) -> [Node; 2] {
    let mut nodes = [node(NodeId::First, *now), node(NodeId::Second, *now)];
    for _ in 0..40 {
        *now = now.after(Span::from_ms(250));
        for i in [0, 1] {
            nodes[i].handle_timeout(*now);
            drain(&mut nodes, i, *now);
        }
    }
    assert_eq!(nodes.each_ref().map(Node::role), [Role::Primary, Role::Standby]);
    nodes
}

fn renewal(criterion: &mut Criterion) {
    let mut now = Instant(1_000_000_000);
    let mut nodes = pair(&mut now);
    let mut group = criterion.benchmark_group("core");
    group.throughput(Throughput::Elements(STEPS_A_RENEWAL));
    group.bench_function("renewal, three steps", |bencher| {
        bencher.iter(|| {
            now = now.after(Span::from_ms(250));
            nodes[0].handle_timeout(now);
            assert_eq!(1 + drain(&mut nodes, 0, now), STEPS_A_RENEWAL);
        });
    });
    group.finish();
}

criterion_group!(benches, renewal);
criterion_main!(benches);
