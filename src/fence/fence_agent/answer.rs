//! What an agent's output and exit status mean.

use crate::process::{Ending, Finished};

use super::super::Reading;

/// Exit statuses of `status` (ClusterLabs, FenceAgentAPI.md): 0 on, 2 off. Everything that goes wrong is 1.
const EXIT_ON: i32 = 0;
const EXIT_OFF: i32 = 2;

/// Lines that explain nothing.
const NOISE: [&str; 2] = ["Please use '-h' for usage", "Traceback (most recent call last):"];

/// Both must agree, because shells and argument parsers exit with 2 on errors of their own.
pub fn reading_of(finished: &Finished) -> Reading {
    let stdout = finished.stdout_text();
    let says = |line: &str| stdout.lines().any(|l| l.trim() == line);
    match (finished.ending, says("Status: ON"), says("Status: OFF")) {
        (Ending::Exited(EXIT_ON), true, false) => Reading::On,
        (Ending::Exited(EXIT_OFF), false, true) => Reading::Off,
        (Ending::Exited(_) | Ending::Signalled(_) | Ending::TimedOut | Ending::Stuck, ..) => Reading::Unknown,
    }
}

/// Its end and its words, in one line; the end first, since words may have none.
pub fn told(finished: &Finished) -> String {
    let ending = match finished.ending {
        Ending::Exited(status) => format!("exit {status}"),
        Ending::Signalled(signal) => format!("died of signal {signal}"),
        Ending::TimedOut => "ran into its limit and was killed".to_owned(),
        Ending::Stuck => "hangs in the kernel".to_owned(),
    };
    let words = [finished.stdout_text(), finished.stderr_text()].map(|text| lines(&text)).concat();
    if words.is_empty() { ending } else { format!("{ending}: {}", words.join("; ")) }
}

fn lines(text: &str) -> Vec<String> {
    let lines = text.lines().map(|line| undated(line.trim()));
    lines.filter(|line| !line.is_empty() && !NOISE.contains(line)).map(str::to_owned).collect()
}

/// Their log lines begin with date and time, which would make every one of them look new: "2026-11-30 18:32:27,101
/// ERROR: Failed: …".
fn undated(line: &str) -> &str {
    let is_stamp = |word: &str| word.len() >= 8 && word.chars().all(|c| c.is_ascii_digit() || "-:,.".contains(c));
    let mut words = line.splitn(3, ' ');
    match (words.next(), words.next(), words.next()) {
        (Some(date), Some(time), Some(rest)) if is_stamp(date) && is_stamp(time) => rest,
        _ => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(ending: Ending, stdout: &str, stderr: &str) -> Finished {
        Finished { ending, stdout: stdout.into(), stderr: stderr.into(), dropped: 0 }
    }

    #[test]
    fn a_state_is_read_only_where_words_and_exit_status_agree() {
        for (status, said, reading) in [
            (0, "Status: ON\n", Reading::On),
            (2, "Status: OFF\n", Reading::Off),
            (2, "noise\nStatus: OFF \nmore", Reading::Off),
            (2, "", Reading::Unknown),
            (2, "Status: ON\n", Reading::Unknown),
            (0, "Status: OFF\n", Reading::Unknown),
            (0, "", Reading::Unknown),
            (1, "Status: OFF\n", Reading::Unknown),
            (2, "Status: OFFLINE\n", Reading::Unknown),
            (2, "Status: OFF\nStatus: ON\n", Reading::Unknown),
            (0, "Success: Already OFF\n", Reading::Unknown),
        ] {
            assert_eq!(reading_of(&finished(Ending::Exited(status), said, "")), reading, "{status} {said:?}");
        }
        assert_eq!(reading_of(&finished(Ending::TimedOut, "Status: OFF\n", "")), Reading::Unknown);
    }

    #[test]
    fn its_words_are_told_without_their_dates() {
        let log = "2026-11-30 18:32:27,101 ERROR: Failed: Unable to connect\n\n2026-11-30 18:32:27,102 ERROR: x\n";
        let usage = "Please use '-h' for usage\n";
        let text = told(&finished(Ending::Exited(1), "", &[log, usage].concat()));
        assert_eq!(text, "exit 1: ERROR: Failed: Unable to connect; ERROR: x");
        assert_eq!(told(&finished(Ending::Exited(2), "Status: OFF\n", "")), "exit 2: Status: OFF");
    }
}
