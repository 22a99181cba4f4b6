//! Progress of fetching and loading: bars on a terminal, else a line for each stage.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use butter::hub::Event;
use butter::{EventListeners, ModelEvent};
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::{Terminal, bytes};

/// How often a spinner turns.
const TICK: Duration = Duration::from_millis(100);

const DOWNLOAD: &str =
    "{bar:30.cyan/dim} {bytes:>10} of {total_bytes}  {bytes_per_sec}  {eta} left";
const DOWNLOAD_WITHOUT_TOTAL: &str = "{spinner:.cyan} {msg} {bytes:>10}  {bytes_per_sec}";
const LOAD: &str = "{bar:30.cyan/dim} {msg}";
const ESTIMATE: &str = "{bar:30.cyan/dim} chunk {pos} of {len}  {msg}  {eta} left";
const BUSY: &str = "{spinner:.cyan} {msg}";

/// Tells the user how far a model is.
#[derive(Debug)]
pub(crate) struct Progress {
    terminal: Terminal,
    stage: Mutex<Stage>,
}

/// What is on the screen now.
#[derive(Debug, Default)]
struct Stage {
    kind: Option<Kind>,
    bar: Option<ProgressBar>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Download,
    Load,
}

impl Progress {
    pub(crate) fn new(terminal: &Terminal) -> Self {
        Self { terminal: terminal.clone(), stage: Mutex::default() }
    }

    /// Listeners that show how far a load is.
    pub(crate) fn into_listeners(self) -> EventListeners {
        let mut listeners = EventListeners::default();
        listeners.add(move |event| self.show(event));
        listeners
    }

    fn show(&self, event: &ModelEvent) {
        match event {
            ModelEvent::Downloading(event) => self.show_download(event),
            ModelEvent::Loading { done, total, .. } => {
                let mut stage = self.stage();
                if stage.enter(Kind::Load) && self.terminal.is_animated() {
                    stage.bar = Some(bar(*total as u64, LOAD));
                }
                stage.draw(*done as u64, &format!("loading, tensor {done} of {total}"));
            }
            ModelEvent::Loaded { path } => {
                self.busy("warming up", &format!("loaded {}", shown(path)));
            }
            ModelEvent::Ready | ModelEvent::Failed { .. } => self.stage().clear(),
            _ => {}
        }
    }

    /// Shows how far a fetch is.
    pub(crate) fn show_download(&self, event: &Event) {
        match event {
            Event::Trying { source } => {
                self.stage().clear();
                self.terminal.note(format!("fetching {source}"));
                if self.terminal.is_animated() {
                    self.stage().bar = Some(spinner(BUSY, "connecting"));
                }
            }
            Event::SourceFailed { source, reason } => {
                self.stage().clear();
                self.terminal.warn(format!("{source}: {reason}"));
            }
            Event::Downloading { done, total } => {
                self.stage().download(*done, *total, &self.terminal);
            }
            Event::Verifying => self.busy("checking the hash", "checking the hash"),
            Event::Ready { .. } => self.stage().clear(),
            _ => {}
        }
    }

    /// Shows a stage that says nothing until it is over.
    fn busy(&self, animated: &'static str, still: &str) {
        let mut stage = self.stage();
        stage.clear();
        if self.terminal.is_animated() {
            stage.bar = Some(spinner(BUSY, animated));
        } else {
            self.terminal.note(still);
        }
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.stage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Stage {
    /// Whether a stage has just begun; the one before it is wiped off the screen.
    fn enter(&mut self, kind: Kind) -> bool {
        let is_new = self.kind != Some(kind);
        if is_new {
            self.clear();
            self.kind = Some(kind);
        }
        is_new
    }

    fn download(&mut self, done: u64, total: Option<u64>, terminal: &Terminal) {
        let has_begun = self.enter(Kind::Download);
        if has_begun && terminal.is_animated() {
            let started = match total {
                Some(total) => bar(total, DOWNLOAD),
                None => spinner(DOWNLOAD_WITHOUT_TOTAL, "downloading"),
            };
            // What an earlier attempt has left counts neither for the speed nor for the time that is left.
            started.set_position(done);
            started.reset_eta();
            self.bar = Some(started);
        } else if has_begun && let Some(total) = total {
            terminal.note(format!("downloading {}", bytes(total)));
        }
        // A Python package's size is known only when pip is done.
        if let (Some(bar), Some(total)) = (&self.bar, total)
            && bar.length() != Some(total)
        {
            bar.disable_steady_tick();
            bar.set_length(total);
            bar.set_style(style(DOWNLOAD));
        }
        self.draw(done, "downloading");
    }

    fn draw(&self, done: u64, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(message.to_owned());
            bar.set_position(done);
        }
    }

    fn clear(&mut self) {
        self.kind = None;
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

/// A bar for something that is estimated chunk by chunk.
pub(crate) fn estimate(chunks: u64) -> ProgressBar {
    bar(chunks, ESTIMATE)
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants of this file.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn bar(total: u64, template: &str) -> ProgressBar {
    ProgressBar::new(total).with_style(style(template))
}

fn spinner(template: &str, message: &'static str) -> ProgressBar {
    let spinner = ProgressBar::new_spinner().with_style(style(template)).with_message(message);
    spinner.enable_steady_tick(TICK);
    spinner
}

/// The last part of a path; those in the cache are long.
fn shown(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
