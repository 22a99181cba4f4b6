#[kernel]
pub async unsafe fn modifiers(x: Value) {}

#[kernel]
#[inline]
fn attributes(x: Value) {}

#[kernel]
fn SHOUT(x: Value) {}

#[kernel]
fn bounds<T: Copy, const N: usize, U>(x: Value) {}

#[kernel]
fn where_clause<T>(x: Value)
where
    T: Float,
{
}

#[kernel(grid = (n,))]
fn types<T: Float, W: Format>(
    a: &Tensor<T, (n,)>,
    b: Tensor<T, n>,
    c: Tensor<T>,
    d: Tensor<W, (n,)>,
    e: Tensor<Q, (n,)>,
    f: Quantized<T, (n, k)>,
    g: Activations<q8, (n, k)>,
    h: Value,
    i: f16,
    j: Vec<f32>,
    k2: Tensor<T, ()>,
    l: Tensor<T, { n }>,
    m: Tensor<T, { (n, f(k)) }>,
    mut o: f32,
    (p, q): f32,
) -> Value {
}

#[kernel(grid = (n,))]
fn names<T: Float>(n: Tensor<T, (n,)>, x: Tensor<T, (k,)>, x: f32, EPS: f32) {}

#[kernel]
fn result(x: Value) -> f32 {
    x
}
