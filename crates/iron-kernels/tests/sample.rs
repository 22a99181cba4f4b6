//! Sampling: the generator's known answers, the distribution, and each filter against sorting.

mod common;

use common::on_every_level;
use iron_runtime::{DType, Device, Tensor};
use iron_std::reference::Random;

#[derive(Clone, Copy)]
struct Settings {
    temperature: f32,
    top_k: i32,
    top_p: f32,
    min_p: f32,
}

/// `draws` draws from one row of logits, each with its own counter.
fn draw(
    device: &Device,
    logits: &[f32],
    settings: Settings,
    seed: [i32; 2],
    draws: std::ops::Range<i32>,
) -> Vec<i32> {
    let (rows, vocab) = (draws.len(), logits.len());
    let repeated: Vec<f32> = (0..rows).flat_map(|_| logits.iter().copied()).collect();
    let numbers: Vec<f32> = (0..rows)
        .flat_map(|_| [settings.temperature, settings.top_p, settings.min_p, 0.0])
        .collect();
    let choices: Vec<i32> =
        draws.flat_map(|draw| [settings.top_k, seed[0], seed[1], draw]).collect();
    let out = Tensor::zeros(DType::I32, &[rows]).expect("valid shape");
    let cmd = device.command_buffer();
    iron_kernels::sample(
        &cmd,
        &Tensor::from_slice(&repeated, &[rows, vocab]).expect("valid shape"),
        &Tensor::from_slice(&numbers, &[rows, 4]).expect("valid shape"),
        &Tensor::from_slice(&choices, &[rows, 4]).expect("valid shape"),
        &Tensor::zeros(DType::F32, &[rows, vocab]).expect("valid shape"),
        &out,
    )
    .expect("encodes");
    cmd.run().expect("runs");
    out.read::<i32>().expect("readable")
}

/// Probabilities after temperature and filters, by sorting, as Hugging Face transformers orders them.
fn reference(logits: &[f32], settings: Settings) -> Vec<f64> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]));
    let top = f64::from(logits[order[0]]);
    let weight =
        |at: usize| ((f64::from(logits[at]) - top) / f64::from(settings.temperature)).exp();
    if settings.top_k > 0 {
        order.truncate(settings.top_k as usize);
    }
    let total: f64 = order.iter().map(|at| weight(*at)).sum();
    let mut mass = 0.0;
    let kept = order.iter().take_while(|at| {
        let before = mass;
        mass += weight(**at) / total;
        before < f64::from(settings.top_p)
    });
    let kept: Vec<usize> =
        kept.copied().filter(|at| weight(*at) >= f64::from(settings.min_p)).collect();
    let total: f64 = kept.iter().map(|at| weight(*at)).sum();
    let mut out = vec![0.0; logits.len()];
    for at in kept {
        out[at] = weight(at) / total;
    }
    out
}

#[test]
fn draws_follow_the_distribution_that_sorting_gives() {
    on_every_level(|device| {
        let mut random = Random(21);
        let logits = random.values(300, 4.0);
        for settings in [
            Settings { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 },
            Settings { temperature: 0.7, top_k: 10, top_p: 1.0, min_p: 0.0 },
            Settings { temperature: 1.3, top_k: 0, top_p: 0.8, min_p: 0.0 },
            Settings { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.2 },
            Settings { temperature: 0.9, top_k: 40, top_p: 0.9, min_p: 0.05 },
        ] {
            let expected = reference(&logits, settings);
            let draws = 4000;
            let mut counts = vec![0; logits.len()];
            for token in draw(device, &logits, settings, [7, 9], 0..draws) {
                counts[token as usize] += 1;
            }
            for (at, (count, p)) in counts.iter().zip(&expected).enumerate() {
                assert!(
                    *p > 0.0 || *count == 0,
                    "token {at} is filtered out but was drawn {count} times"
                );
                let deviation = (p * (1.0 - p) * f64::from(draws)).sqrt();
                let error = (f64::from(*count) - p * f64::from(draws)).abs();
                assert!(
                    error <= 5.0 * deviation + 1.0,
                    "token {at}: {count} of {draws} draws, expected probability {p:.4}"
                );
            }
        }
    });
}

#[test]
fn temperature_zero_takes_the_first_of_the_largest() {
    on_every_level(|device| {
        let settings = Settings { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0 };
        assert_eq!(draw(device, &[0.5, 2.0, -1.0, 2.0, 1.0], settings, [0, 0], 0..1), [1]);
        let mut logits = vec![f32::NEG_INFINITY; 130];
        logits[129] = -5.0;
        assert_eq!(draw(device, &logits, settings, [0, 0], 0..1), [129]);
    });
}

#[test]
fn a_draw_depends_on_seed_and_number_only() {
    on_every_level(|device| {
        let logits = Random(22).values(1000, 2.0);
        let settings = Settings { temperature: 1.0, top_k: 0, top_p: 0.95, min_p: 0.0 };
        let together = draw(device, &logits, settings, [1, 2], 0..20);
        for (number, token) in together.iter().enumerate() {
            let number = number as i32;
            assert_eq!(draw(device, &logits, settings, [1, 2], number..number + 1), [*token]);
        }
        assert_ne!(draw(device, &logits, settings, [1, 3], 0..20), together, "another seed");
    });
}

/// Threefry-2x32 with 13 rounds of Random123's known answers, by the rule that with equal weights the winner is the
/// token with the largest Gumbel number, which is the one with the largest upper 23 bits of the generator's word.
#[test]
fn the_generator_gives_random123s_known_answers() {
    // `threefry2x32 13` of kat_vectors: counter (0, 0), key (0, 0) gives 9d1c5ec6 in its first word.
    assert_eq!(threefry([0, 0], [0, 0]), 0x9d1c_5ec6);
    on_every_level(|device| {
        let settings = Settings { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0 };
        for seed in [[0, 0], [5, -3], [i32::MAX, 1]] {
            let key = [seed[0] as u32, seed[1] as u32];
            let words: Vec<u32> = (0..500).map(|token| threefry(key, [token, 4]) >> 9).collect();
            let winner = words
                .iter()
                .position(|word| word == words.iter().max().expect("some"))
                .expect("some");
            assert_eq!(draw(device, &vec![0.0; 500], settings, seed, 4..5), [winner as i32]);
        }
    });
}

fn threefry(key: [u32; 2], counter: [u32; 2]) -> u32 {
    let keys = [key[0], key[1], key[0] ^ key[1] ^ 0x1BD1_1BDA];
    let [mut a, mut b] = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for round in 0..13 {
        a = a.wrapping_add(b);
        b = b.rotate_left([13, 15, 26, 6, 17, 29, 16, 24][round % 8]) ^ a;
        if round % 4 == 3 {
            let injection = round / 4 + 1;
            a = a.wrapping_add(keys[injection % 3]);
            b = b.wrapping_add(keys[(injection + 1) % 3].wrapping_add(injection as u32));
        }
    }
    a
}
