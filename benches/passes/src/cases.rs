//! The calls that are timed, at the sizes of a small model.

use half::f16;
use iron_runtime::tile::{pack_rows, packed_bytes, row_groups};
use iron_runtime::{
    Activations, Buffer, DType, Device, Format, QuantizedTensor, RuntimeError, Tensor,
};

use crate::Encode;

/// One call.
pub struct Case {
    /// What the table calls it.
    pub name: &'static str,
    pub call: Call,
    /// Where the result is.
    pub out: Out,
}

/// A kernel and its inputs.
pub enum Call {
    RmsNorm {
        x: Tensor,
        weight: Tensor,
    },
    AddRmsNorm {
        x: Tensor,
        delta: Tensor,
        weight: Tensor,
    },
    SiluMul {
        gate: Tensor,
        up: Tensor,
    },
    Softmax {
        x: Tensor,
    },
    Argmax {
        x: Tensor,
    },
    Matmul {
        x: Activations,
        w: QuantizedTensor,
    },
    Attention {
        q: Tensor,
        keys: Tensor,
        values: Tensor,
        tiles: Tensor,
        visible: Tensor,
        table: Tensor,
    },
}

/// A result.
pub enum Out {
    Tensor(Tensor),
    Activations(Activations),
}

impl Out {
    pub fn tensor(&self) -> &Tensor {
        match self {
            Self::Tensor(tensor) | Self::Activations(Activations::Plain(tensor)) => tensor,
            Self::Activations(Activations::Int8 { .. }) => {
                unreachable!("the case's kernel writes a tensor")
            }
        }
    }

    pub fn activations(&self) -> &Activations {
        match self {
            Self::Activations(activations) => activations,
            Self::Tensor(_) => unreachable!("the case's kernel writes activations"),
        }
    }

    fn values(&self) -> Vec<f32> {
        match self {
            Self::Activations(Activations::Int8 { q, scale, .. }) => {
                let (q, scale) =
                    (q.read::<i8>().expect("readable"), scale.read::<f32>().expect("readable"));
                q.iter().enumerate().map(|(at, q)| f32::from(*q) * scale[at / 32]).collect()
            }
            Self::Activations(Activations::Plain(tensor)) | Self::Tensor(tensor) => {
                match tensor.dtype() {
                    DType::I32 => {
                        tensor.read::<i32>().expect("readable").iter().map(|v| *v as f32).collect()
                    }
                    _ => tensor.read_f32().expect("readable"),
                }
            }
        }
    }
}

/// `encode` for the kernels of the module that it stands in.
macro_rules! encoders {
    () => {
        pub fn encode(cmd: &CommandBuffer, case: &crate::cases::Case) -> Result<()> {
            use crate::cases::Call;
            let out = &case.out;
            match &case.call {
                Call::RmsNorm { x, weight } => {
                    rms_norm(cmd, x, weight, out.activations(), 1e-5, 0.0)
                }
                Call::AddRmsNorm { x, delta, weight } => {
                    add_rms_norm(cmd, x, delta, weight, out.activations(), 1e-5, 0.0)
                }
                Call::SiluMul { gate, up } => silu_mul(cmd, gate, up, out.activations()),
                Call::Softmax { x } => softmax(cmd, x, out.tensor()),
                Call::Argmax { x } => argmax(cmd, x, out.tensor()),
                Call::Matmul { x, w } => matmul(cmd, x, w, out.tensor()),
                Call::Attention { q, keys, values, tiles, visible, table } => {
                    attention(cmd, q, keys, values, tiles, visible, table, out.tensor(), 0.125, 0.0)
                }
            }
        }
    };
}
pub(crate) use encoders;

impl Case {
    /// The result of a single call.
    pub fn run(&self, device: &Device, encode: Encode) -> Vec<f32> {
        let commands = device.command_buffer();
        encode(&commands, self).expect("encodes");
        commands.run().expect("runs");
        self.out.values()
    }
}

/// Every case. Rows are those of a prompt of 512 tokens, or 1 for a decode step.
pub fn all(device: &Device) -> Vec<Case> {
    let (hidden, intermediate) = (576, 1536);
    let mut cases = Vec::new();
    for rows in [1, 512] {
        let of = |decode, prefill| if rows == 1 { decode } else { prefill };
        cases.push(Case {
            name: of("rms_norm, 1 row", "rms_norm, 512 rows"),
            call: Call::RmsNorm { x: matrix(rows, hidden), weight: vector(hidden) },
            out: int8(rows, hidden),
        });
        cases.push(Case {
            name: of("add_rms_norm, 1 row", "add_rms_norm, 512 rows"),
            // Nothing to add: the stream is updated in place, and must stay finite over many calls.
            call: Call::AddRmsNorm {
                x: matrix(rows, hidden),
                delta: zeros(&[rows, hidden]),
                weight: vector(hidden),
            },
            out: int8(rows, hidden),
        });
        cases.push(Case {
            name: of("silu_mul, 1 row", "silu_mul, 512 rows"),
            call: Call::SiluMul {
                gate: matrix(rows, intermediate),
                up: matrix(rows, intermediate),
            },
            out: int8(rows, intermediate),
        });
        cases.push(Case {
            name: of("matmul q4_1, 1 row", "matmul q4_1, 512 rows"),
            call: Call::Matmul {
                x: int8_input(device, rows, hidden),
                w: packed(Format::Q4_1, intermediate, hidden),
            },
            out: Out::Tensor(zeros(&[rows, intermediate])),
        });
        cases.push(Case {
            name: of("matmul f16, 1 row", "matmul f16, 512 rows"),
            call: Call::Matmul {
                x: Activations::plain(matrix(rows, hidden)).expect("plain"),
                w: dense(intermediate, hidden),
            },
            out: Out::Tensor(zeros(&[rows, intermediate])),
        });
        cases.push(attention_case(of("attention, 1 token of 1024", "attention, 512 tokens"), rows));
    }
    let logits = || matrix(8, 49_152);
    cases.push(Case {
        name: "softmax, 8 x 49152",
        call: Call::Softmax { x: logits() },
        out: Out::Tensor(zeros(&[8, 49_152])),
    });
    cases.push(Case {
        name: "argmax, 8 x 49152",
        call: Call::Argmax { x: logits() },
        out: Out::Tensor(Tensor::zeros(DType::I32, &[8]).expect("valid shape")),
    });
    cases
}

/// The last `queries` of 1,024 positions, or all of `queries`.
fn attention_case(name: &'static str, queries: usize) -> Case {
    const PAGE: usize = 64;
    let (heads, kv_heads, head_dim) = (9, 3, 64);
    let tokens = if queries == 1 { 1024 } else { queries };
    let pages = tokens / PAGE;
    let group = heads / kv_heads;
    let tile = if queries == 1 { 1 } else { PAGE / group };
    let mut tiles: Vec<i32> = Vec::new();
    for first in (0..queries).step_by(tile) {
        tiles.extend([first as i32, tile.min(queries - first) as i32, 0, 0]);
    }
    let visible: Vec<i32> = (tokens - queries..tokens).flat_map(|at| [0, at as i32 + 1]).collect();
    let table: Vec<i32> = (0..pages as i32).collect();
    let cache = |shape: [usize; 4]| {
        let count = shape.iter().product();
        Tensor::new(halves(count), 0, DType::F16, &shape).expect("valid shape")
    };
    let integers =
        |values: &[i32], shape: &[usize]| Tensor::from_slice(values, shape).expect("valid shape");
    Case {
        name,
        call: Call::Attention {
            q: matrix(queries * heads, head_dim),
            keys: cache([pages, kv_heads, head_dim, PAGE]),
            values: cache([pages, kv_heads, PAGE, head_dim]),
            tiles: integers(&tiles, &[tiles.len() / 4, 4]),
            visible: integers(&visible, &[queries, 2]),
            table: integers(&table, &[1, pages]),
        },
        out: Out::Tensor(zeros(&[queries * heads, head_dim])),
    }
}

/// Numbers in -1..1 without a pattern that a kernel could profit from.
fn numbers(count: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_u32;
    let next = || {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state as f32 / (u32::MAX / 2) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(count).collect()
}

/// The same in half precision.
fn halves(count: usize) -> Buffer {
    let halves: Vec<f16> = numbers(count).into_iter().map(f16::from_f32).collect();
    Buffer::from_slice(&halves).expect("fits memory")
}

fn matrix(rows: usize, cols: usize) -> Tensor {
    Tensor::from_slice(&numbers(rows * cols), &[rows, cols]).expect("valid shape")
}

fn vector(n: usize) -> Tensor {
    Tensor::from_slice(&numbers(n), &[n]).expect("valid shape")
}

fn zeros(shape: &[usize]) -> Tensor {
    Tensor::zeros(DType::F32, shape).expect("valid shape")
}

fn int8(rows: usize, cols: usize) -> Out {
    Out::Activations(Activations::int8_zeros(rows, cols).expect("valid shape"))
}

/// Activations that a norm has quantised.
fn int8_input(device: &Device, rows: usize, cols: usize) -> Activations {
    let case = Case {
        name: "",
        call: Call::RmsNorm { x: matrix(rows, cols), weight: vector(cols) },
        out: int8(rows, cols),
    };
    case.run(device, crate::all::encode);
    case.out.activations().clone()
}

fn packed(format: Format, n: usize, k: usize) -> QuantizedTensor {
    // Blocks of half-precision scale and minimum 0.0039 and -0.0039, and any codes.
    let mut blocks: Vec<u8> =
        numbers(n * k / 32 * 20).iter().map(|v| (v * 127.0) as i8 as u8).collect();
    for block in blocks.chunks_mut(20) {
        block[..4].copy_from_slice(&[0, 0x1c, 0, 0x9c]);
    }
    let bytes = packed_bytes(format, n, k).expect("valid shape");
    let buffer = Buffer::filled::<RuntimeError>(bytes, |target| {
        pack_rows(format, &blocks, n, k, 0..row_groups(n), target).expect("valid shape");
        Ok(())
    });
    QuantizedTensor::cpu_packed(buffer.expect("fits memory"), 0, bytes, format, n, k)
        .expect("valid")
}

fn dense(n: usize, k: usize) -> QuantizedTensor {
    QuantizedTensor::from_tensor(
        &Tensor::new(halves(n * k), 0, DType::F16, &[n, k]).expect("valid shape"),
    )
    .expect("dense")
}
