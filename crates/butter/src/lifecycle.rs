//! The life of a model, and the options of its load.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use iron_runtime::IsaLevel;

use crate::capabilities::Capabilities;
use crate::executor::Dispatch;
use crate::generate::CancelToken;
use crate::hub::{self, Hub};

/// Where a model stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ModelState {
    /// Nothing happened yet.
    #[default]
    Idle,
    /// Files are being fetched.
    Downloading,
    /// Weights are being brought to the device.
    Loading,
    /// Everything is there.
    Loaded,
    /// The first token costs no more than any other.
    Ready,
    /// It did not work.
    Failed,
}

/// What happens while a model is loaded, in this order; `Downloading` and `Loading` repeat.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ModelEvent {
    /// Something about fetching the model's files.
    Downloading(hub::Event),
    /// A tensor was brought to the device.
    Loading {
        /// The tensor.
        tensor: String,
        /// Tensors done, this one included.
        done: usize,
        /// Tensors of the file.
        total: usize,
    },
    /// All weights are there.
    Loaded {
        /// The model's file or folder.
        path: PathBuf,
    },
    /// Prewarmed: the first token costs no more than any other.
    Ready,
    /// It did not work.
    Failed {
        /// The error's message.
        message: String,
    },
}

impl ModelEvent {
    /// The state that the event belongs to.
    pub fn state(&self) -> ModelState {
        match self {
            Self::Downloading(_) => ModelState::Downloading,
            Self::Loading { .. } => ModelState::Loading,
            Self::Loaded { .. } => ModelState::Loaded,
            Self::Ready => ModelState::Ready,
            Self::Failed { .. } => ModelState::Failed,
        }
    }
}

type Listener = Arc<dyn Fn(&ModelEvent) + Send + Sync>;

/// Who is told about events.
#[derive(Clone, Default)]
pub struct EventListeners(Vec<Listener>);

impl EventListeners {
    /// Tells `listener` too, on the loading thread.
    pub fn add(&mut self, listener: impl Fn(&ModelEvent) + Send + Sync + 'static) {
        self.0.push(Arc::new(listener));
    }

    /// A channel that gets every event.
    pub fn channel(&mut self) -> Receiver<ModelEvent> {
        let (sender, receiver): (Sender<ModelEvent>, _) = channel();
        self.add(move |event| {
            // A receiver that is gone wants no more.
            let _ = sender.send(event.clone());
        });
        receiver
    }

    pub(crate) fn tell(&self, event: &ModelEvent) {
        for listener in &self.0 {
            listener(event);
        }
    }
}

impl fmt::Debug for EventListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EventListeners({})", self.0.len())
    }
}

/// How a model is loaded.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// Threads that compute; `None`: one for each physical core that this process may use.
    pub threads: Option<usize>,
    /// Instruction set of the kernels; `None`: the best that the processor has.
    pub isa: Option<IsaLevel>,
    /// The longest conversation in tokens; `None`: what the model was made for.
    pub context_length: Option<usize>,
    /// The most sequences at once: answers being generated, and sessions.
    pub max_sequences: usize,
    /// The most bytes of keys and values; `None`: enough for all sequences. Memory is taken when it is first used.
    pub cache_bytes: Option<u64>,
    /// Whether activations, keys and values are f32, for comparisons with a reference.
    pub f32: bool,
    /// How forward passes reach the device.
    pub dispatch: Dispatch,
    /// Whether the first token is computed once at load, so that weights are in memory.
    pub prewarm: bool,
    /// What the model must be able to do; `None`: whatever it can.
    pub capabilities: Option<Capabilities>,
    /// Where models are fetched from and kept.
    pub hub: Hub,
    /// Ends a download from another thread.
    pub cancel: CancelToken,
    /// Who is told about progress.
    pub events: EventListeners,
}

impl Default for LoadOptions {
    fn default() -> Self {
        Self {
            threads: None,
            isa: None,
            context_length: None,
            max_sequences: 4,
            cache_bytes: None,
            f32: false,
            dispatch: Dispatch::default(),
            prewarm: true,
            capabilities: None,
            hub: Hub::from_env(),
            cancel: CancelToken::default(),
            events: EventListeners::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{EventListeners, ModelEvent, ModelState};

    #[test]
    fn channel_gets_every_event() {
        let mut listeners = EventListeners::default();
        let events = listeners.channel();
        listeners.tell(&ModelEvent::Ready);
        listeners.tell(&ModelEvent::Failed { message: "full".to_owned() });
        let states: Vec<_> = events.try_iter().map(|event| event.state()).collect();
        assert_eq!(states, [ModelState::Ready, ModelState::Failed]);
        drop(events);
        listeners.tell(&ModelEvent::Ready);
    }
}
