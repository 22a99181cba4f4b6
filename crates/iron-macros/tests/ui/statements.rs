#[kernel]
fn while_loop(x: Value) -> Value {
    while x < 3 {
        x += 1;
    }
    x
}

#[kernel]
fn endless_loop(x: Value) {
    loop {
        break;
    }
}

#[kernel]
fn early_exit(x: Value) -> Value {
    if x < 0 {
        return x;
    }
    for i in 0..3 {
        if i == 1 {
            continue;
        }
    }
    x
}

#[kernel]
fn typed_let(x: Value) -> Value {
    let y: f32 = x;
    let z;
    let Some(w) = x else { y };
    let LIMIT = 3;
    let (a, (b, c)) = x;
    let () = x;
    y
}

#[kernel]
fn assignments(x: Value, out: Value) {
    out[(0, 1)] = x;
    (x, out) = (out, x);
    BM = 3;
    x.y += 1;
    store(out[0], x = 3);
    f(x += 1);
}

#[kernel]
fn loops(x: Value) {
    for i in x {}
    for mut i in 0..3 {}
    for (a, b) in range(0, 3) {}
    'outer: for i in 0..3 {}
    for i in 0..=3 {}
    for i in 0.. {}
    let y = 'block: { x };
}

#[kernel]
fn items(x: Value) {
    const N: u32 = 3;
    println!("{x}");
    let y = vec![x];
    #[allow(unused)]
    let z = x;
}
