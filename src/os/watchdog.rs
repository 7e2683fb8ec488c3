//! The hardware watchdog: a timer outside the processor's reach that resets the machine unless it is fed.
//!
//! The interface is the kernel's (Documentation/watchdog/watchdog-api.rst): opening starts it, a byte feeds it, `V` just
//! before closing stops it. The time that counts is the one read back from the device: drivers round, and cut off.
#![allow(unsafe_code)]

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::ioctl::{Getter, Updater, ioctl, opcode};

use crate::core::Span;

/// `WDIOC_SETTIMEOUT` and `WDIOC_GETTIMEOUT` of linux/watchdog.h, in whole seconds.
const SET_TIMEOUT: rustix::ioctl::Opcode = opcode::read_write::<i32>(b'W', 6);
const GET_TIMEOUT: rustix::ioctl::Opcode = opcode::read::<i32>(b'W', 7);

/// What a watchdog device can do. The one of the kernel, or one of a test.
pub trait Device {
    /// Seconds.
    fn set_timeout(&mut self, seconds: i32) -> io::Result<()>;
    fn timeout(&mut self) -> io::Result<i32>;
    fn write(&mut self, byte: u8) -> io::Result<()>;
}

/// Why there is no watchdog.
#[derive(Debug, thiserror::Error)]
pub enum WatchdogError {
    #[error("there is no watchdog device {}: load its driver (`wdctl` lists devices), name the right one in \
             `guard.device`, or write `watchdog = \"none\"` in [guard]", path.display())]
    Missing { path: PathBuf },
    #[error("{} is in use by another process: it cannot be shared. Set RuntimeWatchdogSec=0 in \
             /etc/systemd/system.conf, stop watchdog(8) or sbd, or name another device in `guard.device`", path.display())]
    Busy { path: PathBuf },
    #[error("cannot {step} the watchdog {}: {source}", path.display())]
    Io { path: PathBuf, step: &'static str, source: io::Error },
    #[error("the watchdog {} fires after {real}, and the margin has room for {least} to {most}: write \
             `watchdog = \"{real}\"` in [guard] if the lease has room, or use another device", path.display())]
    Time { path: PathBuf, real: Span, least: Span, most: Span },
}

/// An armed watchdog.
#[derive(Debug)]
pub struct Watchdog<D: Device = File> {
    device: D,
    real: Span,
}

/// Opens the device, which starts it, and arms it.
///
/// # Errors
/// It is missing, used by another, or does not keep the time that is asked for. Then it is closed as it was found, as
/// far as its driver lets it.
pub fn open(path: &Path, least: Span, most: Span) -> Result<Watchdog, WatchdogError> {
    let at = || path.to_owned();
    let opened = OpenOptions::new().write(true).custom_flags(libc::O_CLOEXEC).open(path);
    let device = opened.map_err(|source| match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::NOENT | Errno::NODEV | Errno::NXIO) => WatchdogError::Missing { path: at() },
        Some(Errno::BUSY) => WatchdogError::Busy { path: at() },
        Some(_) | None => WatchdogError::Io { path: at(), step: "open", source },
    })?;
    arm(device, path, least, most)
}

/// As [`open`], with a device that is open already.
///
/// # Errors
/// It does not keep a time from `least` to `most`.
pub fn arm<D: Device>(mut device: D, path: &Path, least: Span, most: Span) -> Result<Watchdog<D>, WatchdogError> {
    let failed = |step| move |source| WatchdogError::Io { path: path.to_owned(), step, source };
    let seconds = i32::try_from(most.as_ms() / 1000).unwrap_or(i32::MAX);
    let armed = device.set_timeout(seconds).map_err(failed("set the time of"));
    let real = armed.and_then(|()| device.timeout().map_err(failed("read the time of")));
    let judged = real.and_then(|real| {
        let real = Span::from_secs(u64::try_from(real).unwrap_or_default());
        let fits = (least..=most).contains(&real);
        if fits { Ok(real) } else { Err(WatchdogError::Time { path: path.to_owned(), real, least, most }) }
    });
    match judged {
        Ok(real) => Ok(Watchdog { device, real }),
        Err(error) => {
            let _ = device.write(b'V');
            Err(error)
        }
    }
}

impl<D: Device> Watchdog<D> {
    /// The time as the device has it.
    pub fn real(&self) -> Span {
        self.real
    }

    /// Starts the time anew.
    pub fn feed(&mut self) -> io::Result<()> {
        self.device.write(b'1')
    }

    /// Closes it so that it stops, if its driver lets it. Only for a node on which nothing runs, verified.
    pub fn release(mut self) {
        let _ = self.device.write(b'V');
    }
}

impl Device for File {
    fn set_timeout(&mut self, seconds: i32) -> io::Result<()> {
        let mut value = seconds;
        // SAFETY: the operation takes and gives one int, as its number says.
        let call = unsafe { Updater::<SET_TIMEOUT, i32>::new(&mut value) };
        // SAFETY: as above; any other device refuses the number.
        Ok(unsafe { ioctl(&*self, call) }?)
    }

    fn timeout(&mut self) -> io::Result<i32> {
        // SAFETY: the operation gives one int, as its number says; any other device refuses the number.
        Ok(unsafe { ioctl(&*self, Getter::<GET_TIMEOUT, i32>::new()) }?)
    }

    fn write(&mut self, byte: u8) -> io::Result<()> {
        self.write_all(&[byte])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A device of a test: no machine of ours has a real one to spare. What it was told can be read.
    #[derive(Debug, Default, Clone)]
    struct Fake {
        shortest: i32,
        longest: i32,
        set: Arc<Mutex<i32>>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Device for Fake {
        fn set_timeout(&mut self, seconds: i32) -> io::Result<()> {
            *self.set.lock().unwrap() = seconds.clamp(self.shortest, self.longest);
            Ok(())
        }

        fn timeout(&mut self) -> io::Result<i32> {
            Ok(*self.set.lock().unwrap())
        }

        fn write(&mut self, byte: u8) -> io::Result<()> {
            self.written.lock().unwrap().push(byte);
            Ok(())
        }
    }

    fn armed(shortest: i32, longest: i32) -> (Fake, Result<Watchdog<Fake>, WatchdogError>) {
        let fake = Fake { shortest, longest, ..Fake::default() };
        let (least, most) = (Span::from_secs(3), Span::from_ms(5500));
        (fake.clone(), arm(fake, Path::new("/dev/watchdog0"), least, most))
    }

    #[test]
    fn a_device_that_keeps_the_time_is_fed_and_released() {
        let (fake, watchdog) = armed(1, 60);
        let mut watchdog = watchdog.unwrap();
        assert_eq!(watchdog.real(), Span::from_secs(5), "whole seconds, and never more than asked for");
        watchdog.feed().unwrap();
        watchdog.release();
        assert_eq!(*fake.written.lock().unwrap(), b"1V");
    }

    #[test]
    fn the_time_that_counts_is_read_back_and_one_that_does_not_fit_is_refused() {
        assert_eq!(armed(1, 4).1.unwrap().real(), Span::from_secs(4));
        for (shortest, longest, real) in [(10, 60, "10s"), (1, 2, "2s")] {
            let (fake, refused) = armed(shortest, longest);
            let told = refused.unwrap_err().to_string();
            assert!(told.contains(&format!("fires after {real}")) && told.contains("3s to 5.500s"), "{told}");
            assert_eq!(*fake.written.lock().unwrap(), b"V", "it is let go as it was found");
        }
    }

    #[test]
    fn a_missing_device_and_one_that_is_no_watchdog_are_told_with_the_remedy() {
        let (least, most) = (Span::from_secs(1), Span::from_secs(5));
        let told = open(Path::new("/nonexistent/watchdog0"), least, most).unwrap_err().to_string();
        assert!(told.contains("no watchdog device /nonexistent/watchdog0") && told.contains("guard.device"), "{told}");
        let told = open(Path::new("/dev/null"), least, most).unwrap_err().to_string();
        assert!(told.contains("cannot set the time of the watchdog /dev/null"), "{told}");
        let busy = WatchdogError::Busy { path: "/dev/watchdog0".into() }.to_string();
        assert!(busy.contains("RuntimeWatchdogSec=0"), "{busy}");
    }
}
