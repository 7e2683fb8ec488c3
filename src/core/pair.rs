//! Two nodes, a network without delay, and time that jumps: the smallest world in which a pair can fail over.

use super::*;

struct Pair {
    nodes: [Node; 2],
    now: Instant,
    cut: [bool; 2],
    /// What the peer's power reads, by target; attempts switch it off.
    off: [bool; 2],
    dead: [bool; 2],
    trace: Vec<(Instant, NodeId, Event)>,
}

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

fn identity(me: NodeId, life: u64) -> Identity {
    let n = me.index() as u64 * 1000 + life;
    Identity { incarnation: Incarnation(n), boot: BootId([n as u8; 16]), uuid: SystemUuid::default(), seed: n }
}

impl Pair {
    fn new() -> Pair {
        let now = Instant(1_000_000_000);
        let node = |me| Node::new(settings(me), identity(me, 1), None, None, now);
        let nodes = [node(NodeId::First), node(NodeId::Second)];
        let mut pair = Pair { nodes, now, cut: [false; 2], off: [false; 2], dead: [false; 2], trace: Vec::new() };
        pair.input(0, Input::Readiness(true));
        pair.input(1, Input::Readiness(true));
        pair
    }

    fn input(&mut self, i: usize, input: Input) {
        self.nodes[i].handle_input(input, self.now);
        self.drain(i);
    }

    fn drain(&mut self, i: usize) {
        while let Some(output) = self.nodes[i].poll_output() {
            self.perform(i, output);
        }
    }

    fn perform(&mut self, i: usize, output: Output) {
        let now = self.now;
        let me = self.nodes[i].settings.me;
        match output {
            Output::Send(d) if !self.cut[i] && !self.dead[1 - i] => self.input(1 - i, Input::Datagram(d)),
            Output::Persist { generation, .. } => self.nodes[i].handle_input(Input::Persisted(generation), now),
            Output::StartProbe { job, .. } => {
                let verified_by = AgentSet(1);
                let reading = if self.off[1 - i] { PowerReading::Off { verified_by } } else { PowerReading::On };
                self.nodes[i].handle_input(Input::ProbeDone { job, reading }, now);
            }
            Output::StartFence { job, .. } => {
                self.off[1 - i] = true;
                self.dead[1 - i] = true;
                let result = FenceResult::Confirmed { scope: Scope::Node, verified_by: AgentSet(1) };
                self.nodes[i].handle_input(Input::FenceDone { job, result }, now);
            }
            Output::StartResources { epoch, .. } => {
                self.nodes[i].handle_input(Input::ResourcesStarted(epoch), now);
            }
            Output::StopResources { epoch, .. } => self.nodes[i].handle_input(Input::ResourcesStopped(epoch), now),
            Output::Report(event) => self.trace.push((now, me, event)),
            Output::Send(_)
            | Output::CancelJob(_)
            | Output::ReadHighest { .. }
            | Output::Take { .. }
            | Output::EnsureAccess { .. }
            | Output::ArmLease { .. }
            | Output::DisarmLease { .. }
            | Output::CutClients
            | Output::AdoptResources { .. }
            | Output::TokenChanged { .. }
            | Output::PowerOn { .. }
            | Output::NoteContact
            | Output::Finished => {}
        }
    }

    fn run(&mut self, span: Span) {
        let end = self.now.after(span);
        loop {
            let due = |i: usize| if self.dead[i] { None } else { self.nodes[i].poll_timeout() };
            let next = [due(0), due(1)].into_iter().flatten().min();
            match next.filter(|at| *at <= end) {
                None => break self.now = end,
                Some(at) => {
                    self.now = at.max(self.now);
                    (0..2).filter(|i| !self.dead[*i]).collect::<Vec<_>>().into_iter().for_each(|i| {
                        self.nodes[i].handle_timeout(self.now);
                        self.drain(i);
                    });
                }
            }
        }
    }

    fn roles(&self) -> [Role; 2] {
        [self.nodes[0].role(), self.nodes[1].role()]
    }

    fn standings(&self) -> [Standing; 2] {
        [self.nodes[0].record.written().standing, self.nodes[1].record.written().standing]
    }
}

#[test]
fn two_fresh_nodes_settle_and_the_first_becomes_primary() {
    let mut pair = Pair::new();
    pair.run(Span::from_secs(2));
    assert_eq!(pair.roles(), [Role::Primary, Role::Standby], "{:#?}", pair.trace);
    assert_eq!(pair.standings(), [Standing::Paired, Standing::Paired], "{:#?}", pair.trace);
    pair.run(Span::from_secs(3600));
    assert_eq!(pair.roles(), [Role::Primary, Role::Standby], "{:#?}", pair.trace);
}

#[test]
fn a_dead_primary_is_fenced_and_the_standby_serves_with_a_higher_token() {
    let mut pair = Pair::new();
    pair.run(Span::from_secs(2));
    pair.dead[0] = true;
    pair.run(Span::from_secs(4));
    assert_eq!(pair.roles()[1], Role::Primary, "{:#?}", pair.trace);
    assert_eq!(pair.standings()[1], Standing::Sole);
    assert!(pair.nodes[1].record.written().held_token > pair.nodes[0].record.written().held_token);
}

#[test]
fn a_dead_standby_is_fenced_before_the_lease_ends_and_nothing_stops() {
    let mut pair = Pair::new();
    pair.run(Span::from_secs(2));
    pair.dead[1] = true;
    pair.run(Span::from_secs(60));
    assert_eq!(pair.roles()[0], Role::Primary, "{:#?}", pair.trace);
    assert_eq!(pair.standings()[0], Standing::Sole);
    assert!(!pair.trace.iter().any(|(_, _, e)| matches!(e, Event::Demoting { .. })));
}

#[test]
fn a_partition_is_won_by_the_first_shooter() {
    let mut pair = Pair::new();
    pair.run(Span::from_secs(2));
    pair.cut = [true; 2];
    pair.run(Span::from_secs(60));
    assert_eq!(pair.roles()[0], Role::Primary, "{:#?}", pair.trace);
    assert_eq!(pair.dead, [false, true]);
}

#[test]
fn a_handover_moves_the_service_and_back() {
    let mut pair = Pair::new();
    pair.run(Span::from_secs(2));
    for (from, to) in [(0, 1), (1, 0), (0, 1)] {
        let now = pair.now;
        pair.nodes[from].command(Command::Failover { force: false }, now).unwrap();
        pair.drain(from);
        pair.run(Span::from_secs(3));
        assert_eq!(pair.roles()[to], Role::Primary, "{:#?}", pair.trace);
        assert_eq!(pair.standings(), [Standing::Paired; 2]);
    }
}

#[test]
fn freeze_and_thaw_end_where_they_began() {
    for by in [0, 1] {
        let mut pair = Pair::new();
        pair.run(Span::from_secs(2));
        let now = pair.now;
        pair.nodes[by].command(Command::Freeze, now).unwrap();
        pair.drain(by);
        pair.run(Span::from_secs(3));
        assert_eq!(pair.standings(), [Standing::Sole, Standing::Out], "{:#?}", pair.trace);
        assert!(pair.nodes.iter().all(|n| n.record.written().frozen));
        let now = pair.now;
        pair.nodes[1 - by].command(Command::Thaw, now).unwrap();
        pair.drain(1 - by);
        pair.run(Span::from_secs(3));
        assert!(pair.nodes.iter().all(|n| !n.record.written().frozen), "{:#?}", pair.trace);
        assert_eq!(pair.standings(), [Standing::Paired; 2], "{:#?}", pair.trace);
    }
}

#[test]
fn a_leaving_standby_is_acknowledged_and_the_primary_goes_on_alone() {
    let mut pair = Pair::new();
    pair.run(Span::from_secs(2));
    let now = pair.now;
    pair.nodes[1].command(Command::Stop, now).unwrap();
    pair.drain(1);
    pair.run(Span::from_secs(2));
    assert!(pair.trace.iter().any(|(_, _, e)| *e == Event::LeaveAcknowledged), "{:#?}", pair.trace);
    pair.dead[1] = true;
    pair.run(Span::from_secs(60));
    assert_eq!(pair.roles()[0], Role::Primary);
}
