#[kernel]
fn casts(x: Value) -> Value {
    x as f32 + 1.0 as f32
}

#[kernel]
fn references(x: Value) -> Value {
    let y = &x;
    *y
}

#[kernel]
fn matching(x: Value) -> Value {
    let y = match x {
        0 => 1,
        _ => 2,
    };
    if let y = x { y } else { x }
}

#[kernel]
fn calls(x: Value) -> Value {
    let a = std::cmp::max(x, 1);
    let b = x.map(|v| v + 1);
    let c = x?;
    let d = x.field;
    let e = zeros::<[f32; 2]>((4,));
    let f = f32::INFINITY;
    let g = zeros::<f32>;
    let h = (x)(3);
    a
}

#[kernel]
fn literals(x: Value) -> Value {
    let a = "text";
    let b = 'c';
    let c = 1u8;
    let d = 1.0f64;
    let e = 99999999999;
    let f = 1e999;
    let g = [1, 2];
    let h = [0; 4];
    let i = ();
    let j = unsafe { x };
    a
}

#[kernel]
fn places(x: Value) -> Value {
    let a = load(x[0][1]);
    let b = load(f(x)[0]);
    let c = load(x[()]);
    let d = load(x[..]);
    a
}
