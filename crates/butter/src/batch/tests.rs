use iron_runtime::{CpuOptions, DType, Device};

use super::{Batch, BatchError, DeviceBatch, Run, Visibility, WantedLogits};
use crate::Error;
use crate::cache::{CacheOptions, KvCache, SequenceId};

fn device() -> Device {
    Device::cpu(CpuOptions { threads: Some(1), ..CpuOptions::default() }).expect("one thread")
}

fn cache(device: &Device) -> (KvCache, SequenceId, SequenceId) {
    let options = CacheOptions {
        num_layers: 1,
        num_kv_heads: 1,
        head_dim: 4,
        dtype: DType::F32,
        context_length: 256,
        max_sequences: 2,
        byte_limit: None,
    };
    let mut cache = KvCache::new(device, options).expect("small");
    let (a, b) = (cache.create().expect("first"), cache.create().expect("second"));
    cache.append(a, 70).expect("fits");
    cache.append(b, 2).expect("fits");
    (cache, a, b)
}

#[test]
fn ragged_runs_are_laid_behind_one_another() {
    let device = device();
    let (cache, a, b) = cache(&device);
    let mut batch = Batch::new(8);
    batch.push(&Run::tokens(a, 66, &[5, 6, 7]).with_logits(WantedLogits::Last)).expect("valid");
    batch.push(&Run::tokens(b, 1, &[9]).with_logits(WantedLogits::All)).expect("valid");
    assert!(!batch.is_decode());
    let buffers = DeviceBatch::new(&device, 16, 8, 4, Some(10)).expect("small");
    let tensors = buffers.upload(&batch, &cache, 0).expect("fits");
    let read = |tensor: &iron_runtime::Tensor| tensor.read::<i32>().expect("idle");
    assert_eq!(read(tensors.ids.as_ref().expect("tokens")), [5, 6, 7, 9]);
    assert_eq!(read(&tensors.positions), [66, 67, 68, 1]);
    // Pages 0 and 1 belong to the first sequence, page 2 to the second.
    assert_eq!(read(&tensors.slots), [66, 67, 68, 129]);
    assert_eq!(read(&tensors.visible), [0, 67, 0, 68, 0, 69, 0, 2]);
    assert_eq!(read(&tensors.visible_window), [57, 67, 58, 68, 59, 69, 0, 2]);
    assert_eq!(read(&tensors.tiles), [0, 3, 0, 0, 3, 1, 1, 0]);
    assert_eq!(read(tensors.wanted.as_ref().expect("not all")), [2, 3]);
}

#[test]
fn padding_stores_and_sees_nothing() {
    let device = device();
    let (cache, a, b) = cache(&device);
    let mut batch = Batch::new(8);
    for (sequence, start) in [(a, 69), (b, 1)] {
        batch
            .push(&Run::tokens(sequence, start, &[5]).with_logits(WantedLogits::Last))
            .expect("ok");
    }
    assert!(batch.is_decode());
    let buffers = DeviceBatch::new(&device, 16, 8, 4, None).expect("small");
    let tensors = buffers.upload(&batch, &cache, 4).expect("fits");
    assert_eq!((tensors.tokens, tensors.wanted_rows, tensors.tiles.shape()), (4, 4, &[4, 4][..]));
    assert_eq!(tensors.slots.read::<i32>().expect("idle")[2..], [-1, -1]);
    assert_eq!(tensors.tiles.read::<i32>().expect("idle")[8..], [0; 8]);
    assert_eq!(tensors.visible.read::<i32>().expect("idle")[4..], [0; 4]);
    assert!(tensors.wanted.is_none());
}

#[test]
fn impossible_runs_are_errors() {
    let device = device();
    let (cache, a, _) = cache(&device);
    let mut batch = Batch::new(8);
    assert_eq!(batch.push(&Run::tokens(a, 0, &[])), Err(BatchError::Empty));
    let rows = [0.0; 9];
    let expected = BatchError::EmbeddingSize { found: 9, hidden_size: 8 };
    assert_eq!(batch.push(&Run::embeddings(a, 0, &rows)), Err(expected));
    let visible = Visibility::Ranges(std::iter::once(0..2).collect());
    let expected = BatchError::Visible { begin: 0, end: 2, held: 1 };
    assert_eq!(batch.push(&Run::tokens(a, 0, &[1]).with_visible(visible)), Err(expected));
    batch.push(&Run::tokens(a, 69, &[1, 2])).expect("valid by itself");
    assert_eq!(batch.push(&Run::embeddings(a, 0, &rows[..8])), Err(BatchError::MixedInputs));
    let buffers = DeviceBatch::new(&device, 16, 8, 4, None).expect("small");
    let error = buffers.upload(&batch, &cache, 0).expect_err("position 70 is not in the cache");
    let expected = BatchError::NotInCache { start: 69, end: 71, held: 70 };
    assert!(matches!(&error, Error::Batch(found) if *found == expected), "{error}");
    let large = DeviceBatch::new(&device, 1, 8, 4, None).expect("small");
    let error = large.upload(&batch, &cache, 0).expect_err("two tokens");
    assert!(error.to_string().contains("at most 1"), "{error}");
}
