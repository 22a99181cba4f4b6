use iron_runtime::{CpuOptions, DType, Device};

use super::{CacheError, CacheOptions, KvCache, PAGE};
use crate::Error;

fn cache(byte_limit: Option<u64>) -> KvCache {
    let device = Device::cpu(CpuOptions { threads: Some(1), ..CpuOptions::default() });
    let options = CacheOptions {
        num_layers: 2,
        num_kv_heads: 1,
        head_dim: 4,
        dtype: DType::F32,
        context_length: 3 * PAGE + 10,
        max_sequences: 3,
        byte_limit,
    };
    KvCache::new(&device.expect("one thread"), options).expect("small")
}

/// Writes `value` at a position of every layer, as the append kernel would.
fn store(cache: &KvCache, id: super::SequenceId, position: usize, value: f32) {
    let slot = cache.storage_slot(id, position).expect("appended") as usize;
    for layer in &cache.layers {
        let keys = layer.keys.row(slot / PAGE).expect("a page");
        keys.narrow(2, slot % PAGE, 1).expect("in the page").write(&[value; 4]).expect("idle");
    }
}

fn load(cache: &KvCache, id: super::SequenceId, position: usize) -> f32 {
    let slot = cache.storage_slot(id, position).expect("appended") as usize;
    let keys = cache.layers[1].keys.row(slot / PAGE).expect("a page");
    keys.narrow(2, slot % PAGE, 1).expect("in the page").read::<f32>().expect("idle")[3]
}

#[test]
fn full_context_is_an_error_that_changes_nothing() {
    let mut cache = cache(None);
    let id = cache.create().expect("first");
    assert_eq!(cache.append(id, 3 * PAGE).expect("fits"), 0);
    let used = cache.used_bytes();
    let error = cache.append(id, 11).expect_err("one too many");
    let expected = CacheError::ContextFull { context: 202, held: 192, asked: 11 };
    assert!(matches!(&error, Error::Cache(found) if *found == expected), "{error}");
    assert!(error.to_string().contains("longer context"));
    assert_eq!((cache.len(id), cache.used_bytes()), (Ok(192), used));
    assert_eq!(cache.append(id, 10).expect("exactly full"), 192);
}

#[test]
fn byte_limit_is_never_exceeded() {
    let page = cache(None).page_bytes();
    let mut cache = cache(Some(3 * page + page / 2));
    let (a, b) = (cache.create().expect("first"), cache.create().expect("second"));
    cache.append(a, 2 * PAGE).expect("two pages");
    let error = cache.append(b, PAGE + 1).expect_err("two more do not fit");
    let expected = CacheError::PoolExhausted { asked: 2, available: 1, capacity: 3 };
    assert!(matches!(&error, Error::Cache(found) if *found == expected), "{error}");
    cache.release(a).expect("live");
    cache.append(b, PAGE + 1).expect("pages of the released sequence");
    assert_eq!(cache.used_bytes(), 2 * page);
}

#[test]
fn fork_shares_pages_until_one_side_writes() {
    let mut cache = cache(None);
    let a = cache.create().expect("first");
    cache.append(a, PAGE + 2).expect("fits");
    store(&cache, a, PAGE, 1.0);
    store(&cache, a, PAGE + 1, 2.0);
    let b = cache.fork(a).expect("a slot is free");
    assert_eq!(cache.used_bytes(), 2 * cache.page_bytes());
    cache.append(b, 1).expect("fits");
    assert_eq!(cache.used_bytes(), 3 * cache.page_bytes(), "only the partial page is copied");
    store(&cache, b, PAGE + 2, 3.0);
    cache.append(a, 1).expect("fits");
    store(&cache, a, PAGE + 2, 4.0);
    assert_eq!((load(&cache, b, PAGE + 1), load(&cache, b, PAGE + 2)), (2.0, 3.0));
    assert_eq!((load(&cache, a, PAGE + 1), load(&cache, a, PAGE + 2)), (2.0, 4.0));
}

#[test]
fn truncation_into_a_shared_page_does_not_write_into_it() {
    let mut cache = cache(None);
    let a = cache.create().expect("first");
    cache.append(a, 2 * PAGE).expect("fits");
    store(&cache, a, 10, 1.0);
    let b = cache.fork(a).expect("a slot is free");
    cache.truncate(b, 10).expect("shorter");
    assert_eq!(cache.append(b, 1).expect("fits"), 10);
    store(&cache, b, 10, 2.0);
    assert_eq!((load(&cache, a, 10), load(&cache, b, 10)), (1.0, 2.0));
}

#[test]
fn page_table_lists_the_pages_of_each_sequence() {
    let mut cache = cache(None);
    let (a, b) = (cache.create().expect("first"), cache.create().expect("second"));
    cache.append(a, 1).expect("fits");
    cache.append(b, 1).expect("fits");
    cache.append(a, PAGE).expect("fits");
    assert_eq!(cache.page_table().shape(), [3, 4]);
    let table = cache.page_table().read::<i32>().expect("idle");
    assert_eq!((&table[..2], table[4]), (&[0, 2][..], 1));
}

#[test]
fn released_sequence_is_unknown_even_when_its_slot_is_used_again() {
    let mut cache = cache(None);
    let a = cache.create().expect("first");
    cache.release(a).expect("live");
    let again = cache.create().expect("free");
    assert_eq!(cache.len(a), Err(CacheError::UnknownSequence(a)));
    assert_eq!(cache.len(again), Ok(0));
}

#[test]
fn more_sequences_than_slots_are_an_error() {
    let mut cache = cache(None);
    for _ in 0..3 {
        cache.create().expect("free");
    }
    assert_eq!(cache.create(), Err(CacheError::TooManySequences { limit: 3 }));
}
