//! What a load tells, and what it refuses.

mod common;

use butter::{Capabilities, Capability, Error, LoadOptions, Model, ModelEvent, ModelState};
use common::{ChangedCheckpoint, checkpoint};
use serde_json::json;

fn options() -> LoadOptions {
    LoadOptions { threads: Some(1), ..LoadOptions::default() }
}

#[test]
fn events_come_in_order() {
    let mut options = options();
    let events = options.events.channel();
    let path = checkpoint("grouped");
    Model::load(path.to_str().expect("UTF-8"), &options).expect("valid");
    let events: Vec<ModelEvent> = events.try_iter().collect();
    let mut states: Vec<_> = events.iter().map(ModelEvent::state).collect();
    states.dedup();
    let expected =
        [ModelState::Downloading, ModelState::Loading, ModelState::Loaded, ModelState::Ready];
    assert_eq!(states, expected);
    let last = events.iter().rev().find_map(|event| match event {
        ModelEvent::Loading { done, total, .. } => Some((*done, *total)),
        _ => None,
    });
    // Embedding, head, final norm; nine tensors in each of two layers.
    assert_eq!(last, Some((21, 21)));
}

#[test]
fn failure_is_an_event_with_its_reason() {
    let mut options = options();
    let events = options.events.channel();
    let error = Model::open("no/such/model", &options).expect_err("missing");
    assert!(error.to_string().contains("no/such/model"), "{error}");
    let expected = ModelEvent::Failed { message: error.to_string() };
    assert_eq!(events.try_iter().last(), Some(expected));
}

#[test]
fn unknown_architecture_lists_the_known() {
    let changed = ChangedCheckpoint::new("grouped", |config| config["model_type"] = json!("rwkv7"));
    let error = Model::open(&changed.0, &options()).expect_err("not supported");
    let message = error.to_string();
    assert!(message.contains("rwkv7") && message.contains("llama"), "{message}");
}

#[test]
fn capabilities_that_the_model_lacks_are_refused() {
    let wanted = Capabilities::of(&[Capability::TextIn, Capability::ImageIn]);
    let options = LoadOptions { capabilities: Some(wanted), ..options() };
    let error = Model::open(checkpoint("grouped"), &options).expect_err("no images");
    assert!(matches!(error, Error::UnsupportedModel { .. }), "{error}");
    assert!(error.to_string().contains("cannot do image-in"), "{error}");
}

#[test]
fn context_beyond_the_models_is_refused() {
    let options = LoadOptions { context_length: Some(513), ..options() };
    let error = Model::open(checkpoint("grouped"), &options).expect_err("512 at most");
    assert!(matches!(error, Error::ContextTooLong { asked: 513, model: 512 }), "{error}");
}

#[test]
fn tensor_of_another_shape_is_an_error_that_names_it() {
    let changed =
        ChangedCheckpoint::new("grouped", |config| config["intermediate_size"] = json!(64));
    let message = Model::open(&changed.0, &options()).expect_err("72 in the file").to_string();
    assert!(message.contains("model.layers.0.mlp.gate_proj.weight"), "{message}");
    assert!(message.contains("[64, 96]") && message.contains("[72, 96]"), "{message}");
}
