#[kernel(grid = rows)]
fn single<T: Float>(x: Tensor<T, (rows, n)>) {}

#[kernel(grid = (rows, n, 1, 2))]
fn four<T: Float>(x: Tensor<T, (rows, n)>) {}

#[kernel(grid = (m, n.pow(2), BM))]
fn unknown_dimension<T: Float>(x: Tensor<T, (rows, n)>) {}

#[kernel(threads = 128)]
fn unknown_argument(x: Value) {}

#[kernel(grid = (n,), grid = (n,))]
fn twice<T: Float>(x: Tensor<T, (n,)>) {}

#[kernel(grid = (n,), variants(head_dim = (64, 128)))]
fn variant_case<T: Float>(x: Tensor<T, (n,)>) {}

#[kernel(grid = (n,), variants(HEAD_DIM = (128, 64)))]
fn variant_order<T: Float>(x: Tensor<T, (n,)>) {}

#[kernel(grid = (n,), variants(HEAD_DIM = (0, n)))]
fn variant_value<T: Float>(x: Tensor<T, (n,)>) {}

#[kernel(grid = (n,), native(rocm = "a.hip"))]
fn native_target<T: Float>(x: Tensor<T, (n,)>) {}

#[kernel(grid = (n,), native(cuda = 3))]
fn native_path<T: Float>(x: Tensor<T, (n,)>) {}
