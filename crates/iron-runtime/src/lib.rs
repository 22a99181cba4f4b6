//! Iron's runtime: what a generated kernel needs while it runs.

pub mod launch;
pub mod tile;
