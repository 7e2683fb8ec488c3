//! One node on a bench: time that jumps, a peer that says what the test wants, a disk that answers when it is told to.
//!
//! Nothing here decides. The bench calls the four kinds of methods of [`Node`], keeps every output in its order, and
//! answers for the disk and the resources unless a test takes that over. Fence devices and stores are the test's.

use leasehold::core::*;

/// The parameters of all tests: H 250 ms, D 1.5 s, T 10 s, M 4 s, L 1 s, F 2 s.
pub fn settings(me: NodeId) -> Settings {
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

pub const START: Instant = Instant(100_000_000_000);
pub const MY_LIFE: Incarnation = Incarnation(1001);
pub const PEER_LIFE: Incarnation = Incarnation(2001);
pub const MY_BOOT: BootId = BootId([1; 16]);
pub const PEER_BOOT: BootId = BootId([2; 16]);

/// The token of [`Bench::primary`], where the plan is not exclusive.
pub const HELD: Token = Token(2);

/// The first heartbeat interval, and what is used to let heartbeats pass.
pub const H: u64 = 250;

pub fn identity() -> Identity {
    Identity { incarnation: MY_LIFE, boot: MY_BOOT, uuid: SystemUuid::default(), seed: 7 }
}

/// What a peer says that does nothing: a ready standby which holds nothing and asks for nothing.
pub fn idle_peer(me: NodeId) -> Datagram {
    Datagram {
        sender: me.peer(),
        incarnation: PEER_LIFE,
        boot: PEER_BOOT,
        seq: Seq(0),
        role: Role::Standby,
        claim: None,
        highest_token: Token::NONE,
        held_token: Token::NONE,
        holding: false,
        resources_up: false,
        standing: Standing::Paired,
        admitted: None,
        wish: false,
        ready: true,
        activity: Activity::Idle,
        echo: None,
        grant: None,
        release: None,
        notices: Notices::default(),
        digest: Digest::default(),
        uuid: SystemUuid::default(),
    }
}

pub struct Bench {
    pub node: Node,
    pub now: Instant,
    /// What the peer says next; its sequence and echo are filled in.
    pub peer: Datagram,
    /// The peer grants whatever the node holds or claims.
    pub grants: bool,
    /// Every output, in order.
    pub log: Vec<(Instant, Output)>,
    /// The disk answers at once; else writes wait for [`Bench::sync`].
    pub disk: bool,
    /// Resources start at once (stops always do, unless `stops` is false).
    pub starts: bool,
    pub stops: bool,
    unsynced: Vec<Generation>,
}

impl Bench {
    pub fn new(settings: Settings, record: Option<Record>, run_time: Option<RunTime>) -> Bench {
        Bench::with_stops(settings, record, run_time, true)
    }

    /// A daemon that finds resources which it cannot stop.
    pub fn new_running(settings: Settings, record: Option<Record>, run_time: Option<RunTime>) -> Bench {
        Bench::with_stops(settings, record, run_time, false)
    }

    fn with_stops(settings: Settings, record: Option<Record>, run_time: Option<RunTime>, stops: bool) -> Bench {
        let mut bench = Bench {
            node: Node::new(settings, identity(), record, run_time, START),
            now: START,
            peer: idle_peer(settings.me),
            grants: false,
            log: Vec::new(),
            disk: true,
            starts: true,
            stops,
            unsynced: Vec::new(),
        };
        bench.drain();
        bench.input(Input::Readiness(true));
        bench
    }

    /// A standby that the peer, primary under token 2, has admitted. The node is the second.
    pub fn standby(settings: Settings) -> Bench {
        let mut bench = Bench::new(Settings { me: NodeId::Second, ..settings }, None, None);
        bench.peer = idle_peer(NodeId::Second);
        bench.peer_is_primary(Token(2));
        bench.contact(2 * H);
        bench.peer.admitted = Some(MY_LIFE);
        bench.contact(1000);
        assert_eq!((bench.role(), bench.standing()), (Role::Standby, Standing::Paired), "{:#?}", bench.events());
        bench
    }

    /// A primary under a lease, with an admitted standby. The node is the first, and holds [`HELD`].
    pub fn primary(settings: Settings) -> Bench {
        let mut bench = Bench::new(Settings { me: NodeId::First, ..settings }, None, None);
        bench.grants = true;
        bench.answer_takes_while_in_contact(6);
        bench.peer.wish = true;
        bench.answer_takes_while_in_contact(4);
        bench.peer.wish = false;
        bench.answer_takes_while_in_contact(4);
        let state = (bench.role(), bench.standing(), bench.last_sent().admitted);
        assert_eq!(state, (Role::Primary, Standing::Paired, Some(PEER_LIFE)), "{:#?}", bench.events());
        bench
    }

    fn answer_takes_while_in_contact(&mut self, beats: u64) {
        for _ in 0..beats {
            self.contact(H);
            self.answer_stores(Some(Token::NONE));
            self.answer_access(true);
            self.answer_take(TakeResult::Taken);
        }
    }

    pub fn peer_is_primary(&mut self, token: Token) {
        self.peer.role = Role::Primary;
        self.peer.holding = true;
        self.peer.resources_up = true;
        self.peer.held_token = token;
        self.peer.highest_token = token;
    }

    /// The peer has stopped, and shows the release of this token.
    pub fn peer_releases(&mut self, token: Token) {
        self.peer.role = Role::Standby;
        self.peer.holding = false;
        self.peer.resources_up = false;
        self.peer.admitted = None;
        self.peer.release = Some(token);
    }

    // --- what happens ----------------------------------------------------------------------------------------

    pub fn input(&mut self, input: Input) {
        self.node.handle_input(input, self.now);
        self.drain();
    }

    pub fn command(&mut self, command: Command) -> Result<(), Refusal> {
        let answer = self.node.command(command, self.now);
        self.drain();
        answer
    }

    /// One datagram of the peer that echoes the newest of this node.
    pub fn hear(&mut self) {
        let datagram = self.next_from_peer();
        self.input(Input::Datagram(datagram));
    }

    /// The same, with something else in this one.
    pub fn hear_with(&mut self, change: impl FnOnce(&mut Datagram)) {
        let mut datagram = self.next_from_peer();
        change(&mut datagram);
        self.input(Input::Datagram(datagram));
    }

    /// What the peer would send now, were it to reach this node.
    pub fn next_from_peer(&mut self) -> Datagram {
        self.peer.seq = Seq(self.peer.seq.0 + 1);
        let last = *self.last_sent();
        self.peer.echo = Some(Echo { incarnation: MY_LIFE, seq: last.seq });
        let token = if last.holding { Some(last.held_token) } else { last.claim };
        let term = Span::from_secs(10);
        let grant = token.filter(|_| self.grants).map(|token| Grant { holder: MY_LIFE, token, seq: last.seq, term });
        if let Some(grant) = grant {
            self.peer.highest_token = self.peer.highest_token.max(grant.token);
        }
        Datagram { grant, ..self.peer }
    }

    /// Time passes in silence.
    pub fn silence(&mut self, ms: u64) {
        let end = self.now.after(Span::from_ms(ms));
        while let Some(at) = self.node.poll_timeout().filter(|at| *at <= end) {
            self.now = at.max(self.now);
            self.node.handle_timeout(self.now);
            self.drain();
        }
        self.now = end;
        self.node.handle_timeout(self.now);
        self.drain();
    }

    /// Time passes with a datagram of the peer at each interval, the last one at the end.
    pub fn contact(&mut self, ms: u64) {
        for _ in 0..ms.div_ceil(H).max(1) {
            self.silence(H);
            self.hear();
        }
    }

    fn drain(&mut self) {
        while let Some(output) = self.node.poll_output() {
            self.log.push((self.now, output.clone()));
            match output {
                Output::Persist { generation, .. } => self.unsynced.push(generation),
                Output::StartResources { epoch, .. } if self.starts => self.feed(Input::ResourcesStarted(epoch)),
                Output::StopResources { epoch, .. } if self.stops => self.feed(Input::ResourcesStopped(epoch)),
                _ => {}
            }
            if self.disk {
                self.feed_writes();
            }
        }
    }

    fn feed(&mut self, input: Input) {
        self.node.handle_input(input, self.now);
    }

    fn feed_writes(&mut self) {
        for generation in std::mem::take(&mut self.unsynced) {
            self.feed(Input::Persisted(generation));
        }
    }

    /// The writes under way are durable.
    pub fn sync(&mut self) {
        self.feed_writes();
        self.drain();
    }

    // --- answers of the world ----------------------------------------------------------------------------------

    pub fn answer_fence(&mut self, result: FenceResult) {
        let job = self.find(|o| if let Output::StartFence { job, .. } = o { Some(*job) } else { None });
        self.input(Input::FenceDone { job: job.expect("an attempt was started"), result });
    }

    pub fn answer_probe(&mut self, reading: PowerReading) {
        let job = self.find(|o| if let Output::StartProbe { job, .. } = o { Some(*job) } else { None });
        self.input(Input::ProbeDone { job: job.expect("a probe was started"), reading });
    }

    pub fn answer_highest(&mut self, highest: Option<Token>) {
        let job = self.find(|o| if let Output::ReadHighest { job } = o { Some(*job) } else { None });
        self.input(Input::HighestRead { job: job.expect("the stores were asked"), highest });
    }

    /// Answers the last question to the stores, if there was one.
    pub fn answer_stores(&mut self, highest: Option<Token>) {
        let job = self.find(|o| if let Output::ReadHighest { job } = o { Some(*job) } else { None });
        if let Some(job) = job {
            self.input(Input::HighestRead { job, highest });
        }
    }

    /// Answers the last take, if there was one (a second answer is ignored by the node).
    pub fn answer_take(&mut self, result: TakeResult) {
        let job = self.find(|o| if let Output::Take { job, .. } = o { Some(*job) } else { None });
        if let Some(job) = job {
            self.input(Input::TakeDone { job, result });
        }
    }

    pub fn answer_access(&mut self, assured: bool) {
        let job = self.find(|o| if let Output::EnsureAccess { job, .. } = o { Some(*job) } else { None });
        if let Some(job) = job {
            self.input(Input::AccessDone { job, assured });
        }
    }

    // --- what the node did ---------------------------------------------------------------------------------------

    /// The last output that `pick` knows.
    pub fn find<T>(&self, pick: impl Fn(&Output) -> Option<T>) -> Option<T> {
        self.log.iter().rev().find_map(|(_, output)| pick(output))
    }

    pub fn count(&self, is: impl Fn(&Output) -> bool) -> usize {
        self.log.iter().filter(|(_, output)| is(output)).count()
    }

    /// Forgets what happened so far, but for the last datagram sent.
    pub fn forget(&mut self) {
        let last = *self.last_sent();
        self.log = vec![(self.now, Output::Send(last))];
    }

    pub fn sent(&self) -> Vec<Datagram> {
        self.log.iter().filter_map(|(_, o)| if let Output::Send(d) = o { Some(*d) } else { None }).collect()
    }

    pub fn last_sent(&self) -> &Datagram {
        let sent = self.log.iter().rev().find_map(|(_, o)| if let Output::Send(d) = o { Some(d) } else { None });
        sent.expect("a node speaks from its start on")
    }

    pub fn events(&self) -> Vec<Event> {
        self.log.iter().filter_map(|(_, o)| if let Output::Report(e) = o { Some(*e) } else { None }).collect()
    }

    /// The place of the first such output in the log.
    pub fn place(&self, is: impl Fn(&Output) -> bool) -> Option<usize> {
        self.log.iter().position(|(_, output)| is(output))
    }

    /// When the first such output came.
    pub fn time_of(&self, is: impl Fn(&Output) -> bool) -> Option<Instant> {
        self.log.iter().find(|(_, output)| is(output)).map(|(at, _)| *at)
    }

    pub fn started(&self) -> bool {
        self.count(is_start) > 0
    }

    /// The proof and the token of the last start.
    pub fn start(&self) -> Option<(ProofKind, Token)> {
        self.find(|o| if let Output::StartResources { proof, token, .. } = o { Some((*proof, *token)) } else { None })
    }

    /// The records that were handed to the disk.
    pub fn writes(&self) -> Vec<Record> {
        let record = |o: &Output| if let Output::Persist { record, .. } = o { Some(*record) } else { None };
        self.log.iter().filter_map(|(_, o)| record(o)).collect()
    }

    pub fn status(&self) -> Status {
        self.node.status(self.now)
    }

    pub fn role(&self) -> Role {
        self.status().role
    }

    /// As it is on the disk.
    pub fn standing(&self) -> Standing {
        self.status().standing
    }

    /// As it is on the disk.
    pub fn record(&self) -> Record {
        self.status().record
    }
}

pub fn is_start(output: &Output) -> bool {
    matches!(output, Output::StartResources { .. })
}

pub fn is_fence(output: &Output) -> bool {
    matches!(output, Output::StartFence { .. })
}

pub fn is_probe(output: &Output) -> bool {
    matches!(output, Output::StartProbe { .. })
}

pub fn is_take(output: &Output) -> bool {
    matches!(output, Output::Take { .. })
}

pub fn is_write(output: &Output) -> bool {
    matches!(output, Output::Persist { .. })
}

pub fn verified(scope: Scope) -> FenceResult {
    FenceResult::Confirmed { scope, verified_by: AgentSet(1) }
}

pub const OFF: PowerReading = PowerReading::Off { verified_by: AgentSet(1) };

/// The plain pair of these tests: node scope, shared data.
pub fn plain() -> Settings {
    settings(NodeId::First)
}

pub fn exclusive() -> Settings {
    Settings { plan: Plan::Exclusive, stores_tokens: true, ..plain() }
}

pub fn yielding() -> Settings {
    Settings { plan: Plan::Yielding, ..plain() }
}

/// What a node that was an admitted standby, and granted token 2, has on its disk.
pub fn paired_record() -> Record {
    Record {
        highest_token: Token(2),
        granted_token: Token(2),
        granted_boot: Some(PEER_BOOT),
        standing: Standing::Paired,
        longest_term: Span::from_secs(10),
        ..Record::missing()
    }
}

/// What a node that held token 2, proven alone, has on its disk.
pub fn sole_record() -> Record {
    Record {
        highest_token: Token(2),
        held_token: Token(2),
        held_proof: Some(ProofKind::Fenced),
        standing: Standing::Sole,
        longest_term: Span::from_secs(10),
        ..Record::missing()
    }
}
