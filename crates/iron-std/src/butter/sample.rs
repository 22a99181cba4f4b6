//! Sampling on the device: one program a sequence, several passes over its logits.

use iron_macros::kernel;

/// `x` rotated left by `amount` bits.
#[kernel]
fn rotate_left(x: Value, amount: u32) -> Value {
    (x << amount) | (x >> (32u32 - amount))
}

/// One round of Threefry-2x32 on the pair.
#[kernel]
fn threefry_mix(a: Value, b: Value, rotation: u32) -> (Value, Value) {
    let sum = a + b;
    (sum, rotate_left(b, rotation) ^ sum)
}

/// The first word of Threefry-2x32 with 13 rounds ([Salmon et al. 2011](https://doi.org/10.1145/2063384.2063405)):
/// a counter-based generator, so a number depends on its key and position only.
#[kernel]
fn threefry(key0: u32, key1: u32, counter0: Value, counter1: Value) -> Value {
    let key2 = key0 ^ key1 ^ 466688986u32;
    let (a, b) = (counter0 + key0, counter1 + key1);
    let (a, b) = threefry_mix(a, b, 13u32);
    let (a, b) = threefry_mix(a, b, 15u32);
    let (a, b) = threefry_mix(a, b, 26u32);
    let (a, b) = threefry_mix(a, b, 6u32);
    let (a, b) = (a + key1, b + (key2 + 1u32));
    let (a, b) = threefry_mix(a, b, 17u32);
    let (a, b) = threefry_mix(a, b, 29u32);
    let (a, b) = threefry_mix(a, b, 16u32);
    let (a, b) = threefry_mix(a, b, 24u32);
    let (a, b) = (a + key2, b + (key0 + 2u32));
    let (a, b) = threefry_mix(a, b, 13u32);
    let (a, b) = threefry_mix(a, b, 15u32);
    let (a, b) = threefry_mix(a, b, 26u32);
    let (a, b) = threefry_mix(a, b, 6u32);
    let (a, b) = (a + key0, b + (key1 + 3u32));
    let (a, b) = threefry_mix(a, b, 17u32);
    a
}

/// Draws a token for each row of logits.
///
/// `settings` rows are `[temperature, top_p, min_p, 0]`, `choices` rows `[top_k, seed (2 words), draw]`; `draw` numbers
/// the draws of one seed. In the order of Hugging Face transformers: divide by the temperature, keep the `top_k` largest
/// (0: all), of those the fewest that hold `top_p` of the probability (1: all), of those the ones with at least `min_p`
/// times the largest probability; tokens of equal probability stay or go together. What is left is drawn by the
/// Gumbel-max trick, so one pass suffices and no prefix sum is needed. A temperature of 0 takes the largest logit, of
/// equal ones the first.
///
/// Thresholds are found bit by bit: for non-negative floats the order of values is that of their bits.
#[kernel(grid = (rows,))]
fn sample(
    logits: Tensor<f32, (rows, vocab)>,
    settings: Tensor<f32, { (rows, 4) }>,
    choices: Tensor<i32, { (rows, 4) }>,
    weights: TensorMut<f32, (rows, vocab)>,
    out: TensorMut<i32, (rows,)>,
) {
    let row = program_id(0);
    let temperature = load(settings[(row, 0)]);
    let top_p = load(settings[(row, 1)]);
    let min_p = load(settings[(row, 2)]);
    let top_k = load(choices[(row, 0)]);

    let mut highest = full::<f32>((BLOCK,), NEG_INFINITY);
    for j in tiles(vocab, BLOCK) {
        highest = highest.max(load_or(logits[(row, j)], NEG_INFINITY));
    }
    let top = max(highest);

    let mut threshold = 0.0;
    let inverse = if temperature > 0.0 { 1.0 / temperature } else { 0.0 };
    if temperature > 0.0 {
        for j in tiles(vocab, BLOCK) {
            store(
                weights[(row, j)],
                exp((load_or(logits[(row, j)], NEG_INFINITY) - top) * inverse),
            );
        }
        if top_k > 0 && top_k < vocab {
            let mut found = 0u32;
            for bit in 0..30 {
                let candidate = found | (1u32 << (29u32 - bit.u32()));
                let least = candidate.bitcast::<f32>();
                let mut counts = zeros::<i32>((BLOCK,));
                for j in tiles(vocab, BLOCK) {
                    counts += select(load(weights[(row, j)]) >= least, 1, 0);
                }
                found = select(sum(counts) >= top_k, candidate, found);
            }
            threshold = found.bitcast::<f32>();
        }
        if top_p < 1.0 {
            let mut totals = zeros::<f32>((BLOCK,));
            for j in tiles(vocab, BLOCK) {
                let weight = load(weights[(row, j)]);
                totals += select(weight >= threshold, weight, 0.0);
            }
            let wanted = sum(totals) * top_p;
            let mut found = 0u32;
            for bit in 0..30 {
                let candidate = found | (1u32 << (29u32 - bit.u32()));
                let least = candidate.bitcast::<f32>().max(threshold);
                let mut masses = zeros::<f32>((BLOCK,));
                for j in tiles(vocab, BLOCK) {
                    let weight = load(weights[(row, j)]);
                    masses += select(weight >= least, weight, 0.0);
                }
                found = select(sum(masses) >= wanted, candidate, found);
            }
            threshold = threshold.max(found.bitcast::<f32>());
        }
        threshold = threshold.max(min_p);
    }

    let key0 = load(choices[(row, 1)]).u32();
    let key1 = load(choices[(row, 2)]).u32();
    let draw = load(choices[(row, 3)]).u32();
    let mut best = full::<f32>((BLOCK,), NEG_INFINITY);
    let mut at = zeros::<i32>((BLOCK,));
    for j in tiles(vocab, BLOCK) {
        let logit = load_or(logits[(row, j)], NEG_INFINITY);
        let mut score = logit;
        if temperature > 0.0 {
            let bits = threefry(key0, key1, j.index().u32(), draw);
            // Uniform in (0, 1): 23 bits, so that the largest is below 1 in f32.
            let uniform = ((bits >> 9u32).i32().f32() + 0.5) * 0.00000011920928955078125;
            let gumbel = -ln(-ln(uniform));
            let kept = load(weights[(row, j)]) >= threshold;
            score = select(kept, (logit - top) * inverse + gumbel, NEG_INFINITY);
        }
        let better = score > best;
        best = select(better, score, best);
        at = select(better, j.index(), at);
    }
    let winner = max(best);
    store(out[row], min(select(best == winner, at, vocab)).min(vocab - 1));
}
