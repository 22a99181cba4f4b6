//! `iron`
fn main() {}
