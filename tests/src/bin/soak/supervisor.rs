//! Starts the fleet, disturbs it, and judges what it says.

use std::collections::BTreeMap;
use std::fmt;
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use crate::caches::Dice;
use crate::fleet::{Disturbance, KILLABLE, Line, Process, SURVIVORS, WORKERS, disturb, is_producer, undisturb};
use crate::worker::clock;

/// A worker that says nothing for so long hangs.
const SILENCE: Duration = Duration::from_secs(20);
/// Longest wait for everything to end when nothing is disturbed any more: leases expire meanwhile.
const FINISH: Duration = Duration::from_secs(60);
/// How much resident memory may grow from the first quarter of a phase to its end.
const GROWTH_KIB: u64 = 24 << 10;

/// What a worker's process said last.
#[derive(Clone, Copy, Debug, Default)]
struct Report {
    transfers: u64,
    open: u64,
    missing: u64,
    quarantined: u64,
    live: u64,
    rss_kib: u64,
}

impl Report {
    fn parse(words: &str) -> Self {
        let mut report = Self::default();
        for word in words.split(' ') {
            let (name, value) = word.split_once('=').expect("NAME=VALUE");
            let field = match name {
                "transfers" => &mut report.transfers,
                "open" => &mut report.open,
                "missing" => &mut report.missing,
                "quarantined" => &mut report.quarantined,
                "live" => &mut report.live,
                "rss_kib" => &mut report.rss_kib,
                _ => panic!("no field {name}"),
            };
            *field = value.parse().expect("a number");
        }
        report
    }

    /// Blocks, leases and requests that have not come to an end.
    fn left(&self) -> u64 {
        self.open + self.missing + self.quarantined + self.live
    }
}

/// A request that a consumer says has failed.
#[derive(Debug)]
struct Failure {
    consumer: &'static str,
    from: u64,
    to: u64,
    producers: Vec<String>,
    why: String,
}

impl Failure {
    fn parse(consumer: &'static str, words: &str) -> Self {
        let mut words = words.splitn(4, ' ');
        let mut next = || words.next().expect("FROM TO PRODUCERS WHY");
        let (from, to) = (next().parse().expect("a time"), next().parse().expect("a time"));
        let producers = next().split(',').map(ToOwned::to_owned).collect();
        Self { consumer, from, to, producers, why: next().to_owned() }
    }

    /// Whether one of those concerned was disturbed meanwhile.
    fn is_expected(&self, disturbances: &[Disturbance]) -> bool {
        disturbances.iter().any(|disturbance| {
            let concerned = disturbance.name == self.consumer || self.producers.iter().any(|p| p == disturbance.name);
            concerned && disturbance.from <= self.to && disturbance.to.is_none_or(|to| to >= self.from)
        })
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { consumer, from, to, producers, why } = self;
        write!(f, "{consumer} from {}, after {} ms: {why}", producers.join(" and "), to.saturating_sub(*from))
    }
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    transfers: u64,
    wrong: u64,
    lost: u64,
    failed: u64,
    expected: u64,
    kills: u64,
    stops: u64,
}

/// One fleet's life.
struct Phase {
    tcp: bool,
    processes: Vec<Process>,
    blobs: BTreeMap<&'static str, String>,
    reports: BTreeMap<(&'static str, u32), Report>,
    disturbances: Vec<Disturbance>,
    failures: Vec<Failure>,
    totals: Totals,
    send: Sender<Line>,
    lines: Receiver<Line>,
}

/// Runs both phases and says what came of them.
pub(crate) fn run(time: Duration, at_least: u64) -> ExitCode {
    let mut sum = Totals::default();
    let mut flat = true;
    for tcp in [false, true] {
        println!("{}", if tcp { "over TCP" } else { "the kernel copies" });
        let mut phase = Phase::start(tcp);
        let grew = phase.disturb_for(time / 2);
        phase.finish();
        flat &= !grew;
        let Totals { transfers, wrong, lost, failed, expected, kills, stops } = phase.judge();
        sum.transfers += transfers;
        sum.wrong += wrong;
        sum.lost += lost;
        sum.failed += failed;
        sum.expected += expected;
        sum.kills += kills;
        sum.stops += stops;
    }
    let Totals { transfers, wrong, lost, failed, expected, kills, stops } = sum;
    println!(
        "{kills} kills, {stops} stops; {expected} requests failed since one of the two had been killed or stopped"
    );
    println!("{transfers} transfers, {wrong} wrong, {lost} lost, {failed} failed");
    let good = flat && transfers >= at_least && wrong + lost + failed == 0;
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

impl Phase {
    fn start(tcp: bool) -> Self {
        let (send, lines) = channel();
        let processes = WORKERS.iter().map(|name| Process::start(name, 0, tcp, send.clone())).collect();
        Self {
            tcp,
            processes,
            blobs: BTreeMap::new(),
            reports: BTreeMap::new(),
            disturbances: Vec::new(),
            failures: Vec::new(),
            totals: Totals::default(),
            send,
            lines,
        }
    }

    /// Kills and stops workers for so long. Whether the memory of one that was never killed grew.
    fn disturb_for(&mut self, time: Duration) -> bool {
        let mut dice = Dice(u64::from(std::process::id()) ^ clock());
        let started = Instant::now();
        let mut early: BTreeMap<&str, u64> = BTreeMap::new();
        let (mut next_word, mut round) = (Duration::from_secs(10), 0);
        while started.elapsed() < time {
            self.listen(Duration::from_millis(300 + dice.roll(1700)));
            let mut any =
                |names: &[&'static str]| names[usize::try_from(dice.roll(names.len() as u64)).expect("small")];
            let (stoppable, killable) = (any(&WORKERS), any(&KILLABLE));
            let [pause, short, long] = [1000, 2000, 6000].map(|most| Duration::from_millis(50 + dice.roll(most)));
            match round % 4 {
                0 | 2 => self.kill(killable, pause),
                1 => {
                    disturb(&mut self.disturbances, killable);
                    self.process(killable).stop();
                    self.listen(short);
                    self.kill(killable, pause);
                }
                // Longer than some deadlines, shorter than a lease.
                _ => self.stop(stoppable, long),
            }
            round += 1;
            if started.elapsed() >= time / 4 && early.is_empty() {
                early = SURVIVORS.iter().map(|name| (*name, self.last(name).rss_kib)).collect();
            }
            if started.elapsed() >= next_word {
                next_word = started.elapsed() + Duration::from_secs(10);
                let transfers: u64 = self.reports.values().map(|report| report.transfers).sum();
                let Totals { kills, stops, .. } = self.totals;
                println!("{:4} s: {transfers} transfers, {kills} kills, {stops} stops", started.elapsed().as_secs());
            }
        }
        let mut grew = false;
        for name in SURVIVORS {
            let (then, now) = (early.get(name).copied().unwrap_or_default(), self.last(name).rss_kib);
            println!("memory of {name}: {then} KiB after a quarter of the time, {now} KiB at the end");
            grew |= then > 0 && now > then + GROWTH_KIB;
        }
        if grew {
            println!("a worker that was never killed grew by more than {GROWTH_KIB} KiB");
        }
        grew
    }

    /// What a worker's present process said last.
    fn last(&self, name: &'static str) -> Report {
        let start = self.processes.iter().find(|process| process.name == name).map_or(0, |process| process.start);
        self.reports.get(&(name, start)).copied().unwrap_or_default()
    }

    fn process(&mut self, name: &str) -> &mut Process {
        self.processes.iter_mut().find(|process| process.name == name).expect("one of the fleet")
    }

    fn stop(&mut self, name: &'static str, time: Duration) {
        self.totals.stops += 1;
        disturb(&mut self.disturbances, name);
        self.process(name).stop();
        self.listen(time);
        self.process(name).go_on();
        undisturb(&mut self.disturbances, name);
    }

    fn kill(&mut self, name: &'static str, pause: Duration) {
        self.totals.kills += 1;
        disturb(&mut self.disturbances, name);
        self.process(name).kill();
        self.listen(pause);
        let start = self.process(name).start + 1;
        *self.process(name) = Process::start(name, start, self.tcp, self.send.clone());
    }

    /// Takes what the workers say, for so long.
    fn listen(&mut self, time: Duration) {
        let until = Instant::now() + time;
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            self.take(&line);
        }
        for process in &mut self.processes {
            if !process.stopped && process.heard.elapsed() > SILENCE {
                println!("lost: {} says nothing for {:?}", process.name, process.heard.elapsed());
                self.totals.lost += 1;
                process.heard = Instant::now();
            }
        }
    }

    fn take(&mut self, line: &Line) {
        let Line { name, start, text } = line;
        let current = self.process(name);
        if current.start == *start {
            current.heard = Instant::now();
        }
        let (word, rest) = text.split_once(' ').expect("a word and more");
        match word {
            "alive" => drop(self.reports.insert((*name, *start), Report::parse(rest))),
            "blob" if self.process(name).start == *start => self.introduce(name, rest),
            "failed" => self.failures.push(Failure::parse(name, rest)),
            "wrong" => {
                println!("wrong: {name}: {rest}");
                self.totals.wrong += 1;
            }
            "note" => println!("{name}: {rest}"),
            _ => {}
        }
    }

    /// A worker is there: its peers are told its blob, and it is told theirs.
    fn introduce(&mut self, name: &'static str, blob: &str) {
        self.blobs.insert(name, blob.to_owned());
        let blobs = &self.blobs;
        for process in &mut self.processes {
            if process.name == name {
                for (peer, blob) in blobs.iter().filter(|(peer, _)| is_producer(peer) != is_producer(name)) {
                    process.tell(&format!("blob {peer} {blob}"));
                }
            } else if is_producer(process.name) != is_producer(name) {
                process.tell(&format!("blob {name} {blob}"));
            }
        }
        undisturb(&mut self.disturbances, name);
    }

    /// Lets everything end.
    fn finish(&mut self) {
        let started = Instant::now();
        for process in &mut self.processes {
            process.tell("finish");
        }
        loop {
            // Each has reported at least once more.
            self.listen(Duration::from_secs(1));
            let left: u64 = WORKERS.iter().map(|name| self.last(name).left()).sum();
            let all = WORKERS.iter().all(|name| self.last(name).rss_kib > 0);
            if (left == 0 && all) || started.elapsed() > FINISH {
                break;
            }
        }
        for index in 0..self.processes.len() {
            let name = self.processes[index].name;
            let report = self.last(name);
            if self.processes[index].has_ended() || report.rss_kib == 0 {
                println!("lost: {name} has ended by itself");
                self.totals.lost += 1;
            } else if report.left() > 0 {
                println!("lost: {name} has not come to an end: {report:?}");
                self.totals.lost += report.left();
            }
        }
    }

    fn judge(mut self) -> Totals {
        self.totals.transfers = self.reports.values().map(|report| report.transfers).sum();
        for failure in &self.failures {
            if failure.is_expected(&self.disturbances) {
                self.totals.expected += 1;
            } else {
                println!("failed: {failure}");
                self.totals.failed += 1;
            }
        }
        self.totals
    }
}
