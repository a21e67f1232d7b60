//! Progress on a terminal: a bar for one simulation, which counts the requests that the simulator takes from the workload
//! and reads the clock once in a thousand of them; a spinner for commands of many simulations.

use std::fmt::Write;
use std::io::{self, IsTerminal as _};
use std::sync::OnceLock;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use blis_eval::finished_simulations;
use blis_eval::run::RequestCounter;
use blis_eval::search::SearchProgress;
use blis_sim::request::Request;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};

/// Requests between two readings of the clock.
const STRIDE: u64 = 1024;
/// Shorter runs show nothing. `BLIS_PROGRESS_AFTER_MS` replaces it in tests, because the time of a run depends on the
/// machine.
const DELAY: Duration = Duration::from_secs(1);
/// Time between two drawings. indicatif limits their rate too, but allows bursts.
const INTERVAL: Duration = Duration::from_millis(100);

/// A bar for each simulation that a command shows.
pub(super) struct ProgressBars {
    /// Whether standard error is a terminal and progress is not turned off.
    pub visible: bool,
}

impl RequestCounter for ProgressBars {
    fn watch<'a>(
        &self,
        requests: Box<dyn Iterator<Item = Request> + Send + 'a>,
        total: Option<u64>,
    ) -> Box<dyn Iterator<Item = Request> + Send + 'a> {
        if self.visible { Box::new(Progress::new(requests, total, true)) } else { requests }
    }
}

fn delay() -> Duration {
    let given = std::env::var("BLIS_PROGRESS_AFTER_MS").ok().and_then(|text| text.parse().ok());
    given.map_or(DELAY, Duration::from_millis)
}

/// A spinner on standard error until it is dropped: the current work, and the number of simulations so far.
pub(super) struct Spinner {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Spinner {
    /// Shows `what` after a second, on a terminal, unless `hidden`.
    pub(super) fn start(what: &'static str, hidden: bool) -> Self {
        if hidden || !io::stderr().is_terminal() {
            return Self { stop: None, thread: None };
        }
        let (stop, stopped) = channel();
        let thread = std::thread::spawn(move || {
            if stopped.recv_timeout(delay()) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let spinner = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            spinner.set_style(ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a valid template"));
            while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                spinner.set_message(format!("{what}: {} simulations,", finished_simulations()));
                spinner.tick();
            }
            spinner.finish_and_clear();
        });
        Self { stop: Some(stop), thread: Some(thread) }
    }
}

impl Drop for Spinner {
    fn drop(&mut self) {
        self.stop.take();
        if let Some(thread) = self.thread.take() {
            // A spinner that panicked is no reason to lose the results.
            let _ = thread.join();
        }
    }
}

/// A bar of a search, on a terminal, until it is dropped. It has no thread: workers are forked from a process with one.
#[derive(Default)]
pub(super) struct SearchBar(OnceLock<Option<ProgressBar>>);

impl SearchBar {
    pub(super) fn show(&self, progress: SearchProgress) {
        let bar = self.0.get_or_init(|| {
            let bar =
                io::stderr().is_terminal().then(|| ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()));
            let style = "{msg} {wide_bar} {pos}/{len} {elapsed}";
            bar.map(|bar| bar.with_style(ProgressStyle::with_template(style).expect("a valid template")))
        });
        let Some(bar) = bar else { return };
        let SearchProgress { phase, evaluated, total, best } = progress;
        bar.set_length(total as u64);
        bar.set_position(evaluated as u64);
        bar.set_message(format!("{phase}: best {best:.4}"));
    }
}

impl Drop for SearchBar {
    fn drop(&mut self) {
        if let Some(Some(bar)) = self.0.get() {
            bar.finish_and_clear();
        }
    }
}

/// A workload that counts its requests.
struct Progress<I> {
    requests: I,
    pulled: u64,
    total: Option<u64>,
    /// When to draw next; `None` for never.
    next: Option<Instant>,
    bar: Option<ProgressBar>,
}

impl<I> Progress<I> {
    /// Over `requests`, `total` of them if known. Shows nothing unless `visible`.
    pub(super) fn new(requests: I, total: Option<u64>, visible: bool) -> Self {
        Self::drawing_at(requests, total, visible.then(|| Instant::now() + delay()))
    }

    fn drawing_at(requests: I, total: Option<u64>, next: Option<Instant>) -> Self {
        Self { requests, pulled: 0, total, next, bar: None }
    }

    #[cold]
    fn draw(&mut self) {
        let now = Instant::now();
        if self.next.is_none_or(|next| now < next) {
            return;
        }
        self.next = Some(now + INTERVAL);
        let (total, pulled) = (self.total, self.pulled);
        self.bar.get_or_insert_with(|| bar(total, pulled)).set_position(pulled);
    }
}

impl<I: Iterator<Item = Request>> Iterator for Progress<I> {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let request = self.requests.next()?;
        self.pulled += 1;
        if self.pulled.is_multiple_of(STRIDE) {
            self.draw();
        }
        Some(request)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.requests.size_hint()
    }
}

/// Wipes the bar: the results come next.
impl<I> Drop for Progress<I> {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A bar that begins at `pulled` requests.
fn bar(total: Option<u64>, pulled: u64) -> ProgressBar {
    let bar =
        ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr()).with_elapsed(DELAY).with_position(pulled);
    let template = match total {
        Some(_) => "{elapsed:>4} {bar:40} {human_pos}/{human_len} requests, {left} left",
        None => "{elapsed:>4} {spinner} {human_pos} requests",
    };
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style.with_key("left", |state: &ProgressState, out: &mut dyn Write| {
            // A failed write shows a bar without it.
            let _ = write!(out, "{:.0} s", seconds_left(state.elapsed(), state.pos(), state.len()));
        })),
        Err(_) => bar, // in the default style
    }
}

/// At the mean speed so far. (indicatif's own estimate takes a while to forget the start.)
fn seconds_left(elapsed: Duration, done: u64, total: Option<u64>) -> f64 {
    let rest = total.unwrap_or(done).saturating_sub(done);
    elapsed.as_secs_f64() * rest as f64 / done.max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use blis_sim::ids::RequestId;
    use blis_sim::units::Micros;

    fn requests(count: u32) -> impl Iterator<Item = Request> {
        (0..count).map(|id| Request::new(RequestId(id), Micros(u64::from(id)), 1, 1))
    }

    #[test]
    fn every_request_comes_through() {
        for visible in [true, false] {
            let ids = Progress::new(requests(3_000), Some(3_000), visible).map(|request| request.id.0);
            assert!(ids.eq(0..3_000));
        }
    }

    #[test]
    fn nothing_shows_before_its_time() {
        let mut soon = Progress::drawing_at(requests(2_048), None, Some(Instant::now() + Duration::from_secs(3_600)));
        assert_eq!(soon.by_ref().count(), 2_048);
        assert!(soon.bar.is_none());
        let mut never = Progress::new(requests(2_048), None, false);
        assert_eq!(never.by_ref().count(), 2_048);
        assert!(never.bar.is_none());
    }

    #[test]
    fn the_bar_moves_with_the_requests() {
        let start = Instant::now();
        let mut now = Progress::drawing_at(requests(2_100), Some(2_100), Some(start));
        assert_eq!(now.by_ref().take(1_024).count(), 1_024);
        assert_eq!(now.bar.as_ref().map(ProgressBar::position), Some(1_024));
        assert!(now.next >= Some(start + INTERVAL), "and rests until the next drawing");
    }

    #[test]
    fn the_rest_takes_as_long_as_what_is_done() {
        assert_eq!(seconds_left(Duration::from_secs(2), 1_000, Some(4_000)), 6.0);
        assert_eq!(seconds_left(Duration::from_secs(2), 0, None), 0.0);
    }

    #[test]
    fn both_styles_are_valid() {
        for total in [None, Some(5)] {
            assert_eq!(bar(total, 0).length(), total);
        }
        assert!(
            ProgressStyle::with_template("{elapsed:>4} {bar:40} {human_pos}/{human_len} requests, {left} left").is_ok()
        );
    }
}
