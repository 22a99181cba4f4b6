use half::{bf16, f16};

use crate::tile::isa::{Isa, Lanes};
use crate::tile::scalar::Scalar;
use crate::tile::testing::{OnIsa, Random, on_every_level};

/// Values where arithmetic is delicate, and random ones.
fn floats(seed: u64) -> [f32; 16] {
    let special = [
        0.0,
        -0.0,
        1.0,
        -1.5,
        2.5,
        0.5,
        -2.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        1e-40,
        3e9,
        -3e9,
        65504.0,
    ];
    let mut random = Random(seed);
    std::array::from_fn(|_| match random.bits() % 4 {
        0 => special[random.bits() as usize % special.len()],
        1 => random.unit() * 1e5,
        _ => random.unit() * 4.0,
    })
}

fn integers(seed: u64) -> [i32; 16] {
    let mut random = Random(seed);
    std::array::from_fn(|_| match random.bits() % 5 {
        0 => [0, -1, i32::MIN, i32::MAX, 31, 32, 33][random.bits() as usize % 7],
        1 => (random.bits() % 40) as i32,
        _ => random.bits() as i32,
    })
}

/// Every lane-wise function on random operands: results as bits.
struct Elementwise {
    a: [f32; 16],
    b: [f32; 16],
    c: [f32; 16],
    i: [i32; 16],
    j: [i32; 16],
}

macro_rules! elementwise {
    ([$a:ident $b:ident $c:ident $i_:ident $j:ident $mm:ident $nn:ident] {$($f:ident($($fa:ident),*);)*} {$($i:ident($($ia:ident),*);)*} {$($m:ident($($ma:ident),*);)*}) => {
        impl OnIsa for Elementwise {
            type Output = Vec<(&'static str, [i32; 16])>;
            #[inline(always)]
            unsafe fn run<I: Isa>(&self) -> Self::Output {
                let mut out = vec![];
                unsafe {
                    let $a = I::load_f32(self.a.as_ptr());
                    let $b = I::load_f32(self.b.as_ptr());
                    let $c = I::load_f32(self.c.as_ptr());
                    let $i_ = I::load_i32(self.i.as_ptr());
                    let $j = I::load_i32(self.j.as_ptr());
                    let $mm = I::lt_i($i_, $j);
                    let $nn = I::lt_f($a, $b);
                    let mut lanes = [0; 16];
                    $(I::store_i32(lanes.as_mut_ptr(), I::bits_i(I::$f($($fa),*))); out.push((stringify!($f), lanes));)*
                    $(I::store_i32(lanes.as_mut_ptr(), I::$i($($ia),*)); out.push((stringify!($i), lanes));)*
                    $(
                        let mask = I::$m($($ma),*);
                        I::store_i32(lanes.as_mut_ptr(), I::select_i(mask, I::splat_i(1), I::splat_i(0)));
                        out.push((stringify!($m), lanes));
                    )*
                }
                out
            }
        }
        impl Elementwise {
            fn expected(&self) -> Vec<(&'static str, [i32; 16])> {
                let mut out = vec![];
                $(out.push((stringify!($f), [0; 16]));)*
                $(out.push((stringify!($i), [0; 16]));)*
                $(out.push((stringify!($m), [0; 16]));)*
                for lane in 0..16 {
                    let ($a, $b, $c, $i_, $j) = (self.a[lane], self.b[lane], self.c[lane], self.i[lane], self.j[lane]);
                    // SAFETY: `Scalar` needs no instruction set.
                    unsafe {
                        let ($mm, $nn) = ($i_ < $j, $a < $b);

                        let mut at = 0;
                        $(out[at].1[lane] = Scalar::$f($($fa),*).to_bits() as i32; at += 1;)*
                        $(out[at].1[lane] = Scalar::$i($($ia),*); at += 1;)*
                        $(out[at].1[lane] = i32::from(Scalar::$m($($ma),*)); at += 1;)*
                        let _ = at;
                    }
                }
                out
            }
        }
    };
}

elementwise! {
    [a b c i j m n]
    {
    add_f(a, b); sub_f(a, b); mul_f(a, b); div_f(a, b); fma_f(a, b, c); min_f(a, b); max_f(a, b); neg_f(a); abs_f(a);
    sqrt_f(a); floor_f(a); round_f(a); select_f(m, a, b); f_from_i(i); f_from_u(i); bits_f(i);
    } {
    add_i(i, j); sub_i(i, j); mul_i(i, j); and_i(i, j); or_i(i, j); xor_i(i, j); shl_i(i, j); shr_i(i, j);
    shr_u(i, j); min_i(i, j); max_i(i, j); select_i(m, i, j); i_from_f(a); bits_i(a);
    } {
    lt_f(a, b); le_f(a, b); eq_f(a, b); lt_i(i, j); le_i(i, j); eq_i(i, j); lt_u(i, j); le_u(i, j); and_m(m, n);
    or_m(m, n); not_m(m); select_m(m, n, m);
    }
}

#[test]
fn elementwise_functions_equal_one_lane_of_scalar_rust() {
    for seed in 0..300 {
        let test = Elementwise {
            a: floats(seed),
            b: if seed % 5 == 0 { floats(seed) } else { floats(seed + 1000) },
            c: floats(seed + 2000),
            i: integers(seed),
            j: if seed % 5 == 0 { integers(seed) } else { integers(seed + 1000) },
        };
        let expected = test.expected();
        for (level, found) in on_every_level(&test) {
            for ((name, found), (_, expected)) in found.iter().zip(&expected) {
                for lane in 0..16 {
                    let nan = |bits: i32| f32::from_bits(bits as u32).is_nan();
                    // Which NaN an operation yields is nobody's business.
                    let equal = found[lane] == expected[lane]
                        || (name.ends_with("_f") && nan(found[lane]) && nan(expected[lane]));
                    assert!(
                        equal,
                        "{level} {name}({}, {}; {}, {}): {} instead of {}",
                        test.a[lane],
                        test.b[lane],
                        test.i[lane],
                        test.j[lane],
                        found[lane],
                        expected[lane]
                    );
                }
            }
        }
    }
}

/// A page of bytes that ends where an unmapped one starts would be better still; here the bytes after the valid part are
/// poisoned, and the last element of the buffer is the last valid one.
struct Loads {
    bytes: Vec<u8>,
    n: i32,
}

type Loaded = [[f32; 16]; 6];

impl OnIsa for Loads {
    type Output = Loaded;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Loaded {
        unsafe {
            let n = self.n.clamp(0, 16) as usize;
            // Each element type gets its own allocation of exactly n elements.
            let of = |size: usize| self.bytes[..n * size].to_vec().into_boxed_slice();
            let (words, halves, bytes) = (of(4), of(2), of(1));
            let fill = I::splat_f(-7.0);
            let fill_i = I::splat_i(-7);
            let mut out = [[0.0; 16]; 6];
            let f = [
                I::load_f32_n(words.as_ptr().cast(), self.n, fill),
                I::load_f16_n(halves.as_ptr().cast(), self.n, fill),
                I::load_bf16_n(halves.as_ptr().cast(), self.n, fill),
                I::bits_f(I::load_i32_n(words.as_ptr().cast(), self.n, I::bits_i(fill))),
                I::f_from_i(I::load_i8_n(bytes.as_ptr().cast(), self.n, fill_i)),
                I::f_from_i(I::load_u8_n(bytes.as_ptr(), self.n, fill_i)),
            ];
            for (out, v) in out.iter_mut().zip(f) {
                I::store_f32(out.as_mut_ptr(), v);
            }
            out
        }
    }
}

#[test]
fn partial_loads_read_the_first_n_and_fill_the_rest() {
    for n in [-3, 0, 1, 2, 7, 8, 9, 15, 16, 20] {
        let mut random = Random(n as u64);
        let bytes: Vec<u8> = (0..64).map(|_| random.bits() as u8).collect();
        let test = Loads { bytes: bytes.clone(), n };
        for (level, found) in on_every_level(&test) {
            for lane in 0..16 {
                let word = u32::from_le_bytes(bytes[4 * lane..][..4].try_into().unwrap());
                let half = u16::from_le_bytes(bytes[2 * lane..][..2].try_into().unwrap());
                let expected = if (lane as i32) < n {
                    [
                        f32::from_bits(word),
                        f16::from_bits(half).to_f32(),
                        bf16::from_bits(half).to_f32(),
                        f32::from_bits(word),
                        f32::from(bytes[lane] as i8),
                        f32::from(bytes[lane]),
                    ]
                } else {
                    [-7.0; 6]
                };
                for (kind, expected) in expected.into_iter().enumerate() {
                    let found = found[kind][lane];
                    assert!(
                        found.to_bits() == expected.to_bits()
                            || (found.is_nan() && expected.is_nan()),
                        "{level} n {n} kind {kind} lane {lane}: {found} instead of {expected}"
                    );
                }
            }
        }
    }
}

struct Stores {
    values: [f32; 16],
    integers: [i32; 16],
    n: i32,
}

impl OnIsa for Stores {
    type Output = Vec<Vec<u8>>;
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Vec<Vec<u8>> {
        unsafe {
            let n = self.n.clamp(0, 16) as usize;
            let v = I::load_f32(self.values.as_ptr());
            let i = I::load_i32(self.integers.as_ptr());
            let mut out: Vec<Vec<u8>> =
                [4, 2, 2, 4, 1, 1].iter().map(|size| vec![0xee; size * n]).collect();
            I::store_f32_n(out[0].as_mut_ptr().cast(), v, self.n);
            I::store_f16_n(out[1].as_mut_ptr().cast(), v, self.n);
            I::store_bf16_n(out[2].as_mut_ptr().cast(), v, self.n);
            I::store_i32_n(out[3].as_mut_ptr().cast(), i, self.n);
            I::store_i8_n(out[4].as_mut_ptr().cast(), i, self.n);
            I::store_u8_n(out[5].as_mut_ptr(), i, self.n);
            if self.n >= 16 {
                let mut whole: Vec<Vec<u8>> =
                    out.iter().map(|part| vec![0xee; part.len()]).collect();
                I::store_f32(whole[0].as_mut_ptr().cast(), v);
                I::store_f16(whole[1].as_mut_ptr().cast(), v);
                I::store_bf16(whole[2].as_mut_ptr().cast(), v);
                I::store_i32(whole[3].as_mut_ptr().cast(), i);
                I::store_i8(whole[4].as_mut_ptr().cast(), i);
                I::store_u8(whole[5].as_mut_ptr(), i);
                assert_eq!(whole, out);
            }
            out
        }
    }
}

#[test]
fn stores_round_to_nearest_even_and_leave_the_rest() {
    for seed in 0..200 {
        let n = [16, 16, 0, 1, 5, 8, 13, 15, -1, 99][seed as usize % 10];
        let mut values = floats(seed);
        // Ties of bf16 and f16, and numbers that round up to infinity.
        values[0] = f32::from_bits(0x3f80_8000);
        values[1] = f32::from_bits(0x3f81_8000);
        values[2] = 1.0 + 0.5 / 1024.0;
        values[3] = 65520.0;
        values[4] = f32::MAX;
        let test = Stores { values, integers: integers(seed), n };
        for (level, found) in on_every_level(&test) {
            for lane in 0..n.clamp(0, 16) as usize {
                let (v, i) = (values[lane], test.integers[lane]);
                let half =
                    |part: &[u8]| u16::from_le_bytes(part[2 * lane..][..2].try_into().unwrap());
                if v.is_nan() {
                    assert!(
                        f16::from_bits(half(&found[1])).is_nan()
                            && bf16::from_bits(half(&found[2])).is_nan()
                    );
                } else {
                    assert_eq!(found[0][4 * lane..][..4], v.to_le_bytes(), "{level}");
                    assert_eq!(half(&found[1]), f16::from_f32(v).to_bits(), "{level} f16 of {v}");
                    assert_eq!(half(&found[2]), bf16::from_f32(v).to_bits(), "{level} bf16 of {v}");
                }
                assert_eq!(found[3][4 * lane..][..4], i.to_le_bytes(), "{level}");
                assert_eq!(found[4][lane], i as u8, "{level}");
                assert_eq!(found[5][lane], i as u8, "{level}");
            }
        }
    }
}

struct Gathers {
    words: Vec<u32>,
    index: [i32; 16],
    n: i32,
}

impl OnIsa for Gathers {
    type Output = [[i32; 16]; 4];
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> [[i32; 16]; 4] {
        unsafe {
            let index = I::load_i32(self.index.as_ptr());
            let m = I::first_m(self.n);
            let fill = I::splat_f(3.0);
            // From the middle, so that negative indices are valid.
            let middle = self.words.as_ptr().add(8);
            let v = [
                I::bits_i(I::gather_f32(middle.cast(), index, m, fill)),
                I::bits_i(I::gather_f16(middle.cast(), index, m, fill)),
                I::bits_i(I::gather_bf16(middle.cast(), index, m, fill)),
                I::gather_i32(middle.cast(), index, m, I::bits_i(fill)),
            ];
            let mut out = [[0; 16]; 4];
            for (out, v) in out.iter_mut().zip(v) {
                I::store_i32(out.as_mut_ptr(), v);
            }
            out
        }
    }
}

#[test]
fn gathers_read_true_lanes_only() {
    let mut random = Random(3);
    let words: Vec<u32> =
        (0..24).map(|_| (random.bits() as u32) & 0x7bff_7bff & 0x7f7f_ffff).collect();
    for n in [0, 5, 16] {
        let index: [i32; 16] = std::array::from_fn(|lane| {
            if (lane as i32) < n { (random.bits() % 24) as i32 - 8 } else { i32::MAX / 8 }
        });
        for (level, found) in on_every_level(&Gathers { words: words.clone(), index, n }) {
            for lane in 0..16 {
                let expected = if (lane as i32) < n {
                    let word = words[(8 + index[lane]) as usize];
                    let half_at = 16 + index[lane];
                    let pair = words[half_at as usize / 2];
                    let half = (pair >> (16 * (half_at % 2))) as u16;
                    let (f, b) = (f16::from_bits(half).to_f32(), bf16::from_bits(half).to_f32());
                    [word, f.to_bits(), b.to_bits(), word]
                } else {
                    [3f32.to_bits(); 4]
                };
                for kind in 0..4 {
                    assert_eq!(
                        found[kind][lane] as u32, expected[kind],
                        "{level} {kind} lane {lane}"
                    );
                }
            }
        }
    }
}

struct Reductions {
    a: [f32; 16],
    i: [i32; 16],
    rows: Vec<f32>,
}

impl OnIsa for Reductions {
    type Output = (Vec<u32>, Vec<bool>);
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Self::Output {
        unsafe {
            let a = I::load_f32(self.a.as_ptr());
            let i = I::load_i32(self.i.as_ptr());
            let mut out = vec![
                I::reduce_add_f(a).to_bits(),
                I::reduce_max_f(a).to_bits(),
                I::reduce_min_f(a).to_bits(),
                I::reduce_add_i(i) as u32,
                I::reduce_max_i(i) as u32,
                I::reduce_min_i(i) as u32,
            ];
            let mut rows = [a; 16];
            for (row, v) in rows.iter_mut().enumerate() {
                *v = I::load_f32(self.rows[16 * row..].as_ptr());
            }
            let mut sums = [0f32; 16];
            I::store_f32(sums.as_mut_ptr(), I::reduce_add_16(&rows));
            for (row, sum) in sums.into_iter().enumerate() {
                assert_eq!(sum.to_bits(), I::reduce_add_f(rows[row]).to_bits(), "row {row}");
            }
            for lane in 0..16 {
                assert_eq!(I::lane_f(a, lane).to_bits(), self.a[lane].to_bits());
                assert_eq!(I::lane_i(i, lane), self.i[lane]);
                let one = I::eq_i(I::iota(), I::splat_i(lane as i32));
                assert!(I::any_m(one) && I::reduce_or_m(one) && !I::reduce_and_m(one));
                out.push(lane as u32);
            }
            let none = I::first_m(0);
            let masks =
                vec![I::any_m(none), I::reduce_and_m(I::first_m(16)), I::any_m(I::splat_m(false))];
            (out, masks)
        }
    }
}

#[test]
fn reductions_follow_one_tree() {
    for seed in 0..50 {
        let mut random = Random(seed);
        let a: [f32; 16] = std::array::from_fn(|_| random.unit());
        let test = Reductions { a, i: integers(seed), rows: random.values(256, 1.0) };
        let mut tree = a.to_vec();
        while tree.len() > 1 {
            let (low, high) = tree.split_at(tree.len() / 2);
            tree = low.iter().zip(high).map(|(a, b)| a + b).collect();
        }
        for (level, (found, masks)) in on_every_level(&test) {
            assert_eq!(found[0], tree[0].to_bits(), "{level}");
            assert_eq!(found[1], a.into_iter().fold(f32::MIN, f32::max).to_bits(), "{level}");
            assert_eq!(found[2], a.into_iter().fold(f32::MAX, f32::min).to_bits(), "{level}");
            assert_eq!(found[3], test.i.iter().fold(0i32, |a, b| a.wrapping_add(*b)) as u32);
            assert_eq!(found[4], *test.i.iter().max().unwrap() as u32);
            assert_eq!(found[5], *test.i.iter().min().unwrap() as u32);
            assert_eq!(masks, [false, true, false], "{level}");
        }
    }
}

/// One block of integer products, with all codes and activations at their extremes or random.
struct Dot4 {
    codes: Vec<u8>,
    x: Vec<u8>,
    bits: u32,
}

impl OnIsa for Dot4 {
    type Output = ([i32; 16], bool);
    #[inline(always)]
    unsafe fn run<I: Isa>(&self) -> Self::Output {
        unsafe {
            let depth = I::dot4_depth(self.bits).min(8);
            let mut total = I::splat_i(0);
            for chunk in 0..8 / depth {
                let mut acc = I::splat_i(0);
                for step in chunk * depth..(chunk + 1) * depth {
                    let codes = I::load_i32(self.codes[64 * step..].as_ptr().cast());
                    let x = I::load_i32(self.x[64 * step..].as_ptr().cast());
                    acc = I::dot4(self.bits, acc, codes, x);
                }
                total = I::add_i(total, I::dot4_fold(acc));
            }
            let mut out = [0; 16];
            I::store_i32(out.as_mut_ptr(), total);
            (out, self.bits == 8 && I::DOT8_SIGNED)
        }
    }
}

#[test]
fn integer_dot_products_are_exact_at_their_extremes() {
    for seed in 0..60 {
        let bits = [4, 6, 8][seed as usize % 3];
        let mut random = Random(seed);
        let largest = ((1u32 << bits) - 1) as u8;
        let codes: Vec<u8> = (0..512)
            .map(|_| match seed / 3 % 4 {
                0 => largest,
                1 => 0,
                _ => random.bits() as u8 & largest,
            })
            .collect();
        let x: Vec<u8> = (0..512)
            .map(|_| match seed / 12 % 3 {
                0 => 127,
                1 => -127i8 as u8,
                _ => (random.bits() as i8).max(-127) as u8,
            })
            .collect();
        let test = Dot4 { codes, x, bits };
        for (level, (found, signed)) in on_every_level(&test) {
            for lane in 0..16 {
                let expected: i32 = (0..512)
                    .filter(|at| at / 4 % 16 == lane)
                    .map(|at| {
                        let code = i32::from(test.codes[at]) - if signed { 128 } else { 0 };
                        code * i32::from(test.x[at] as i8)
                    })
                    .sum();
                assert_eq!(found[lane], expected, "{level} {bits} bits");
            }
        }
    }
}
