//! The work list of the attention kernel.

/// Rows of queries that the kernel computes at once.
const TILE_ROWS: usize = 64;

/// Tiles `[first token, tokens, sequence, 0]` of runs `(first token, tokens, sequence)`, for `group` query heads per key
/// head.
///
/// Each tile is one token exactly when each run is, which is how the kernel knows a decode step: then there are as many
/// tiles as tokens, and else fewer, or a group fills a tile by itself.
pub(super) fn tiles(
    runs: impl Iterator<Item = (usize, usize, i32)>,
    group: usize,
) -> Vec<[i32; 4]> {
    let most = (TILE_ROWS / group).max(1);
    let mut tiles = Vec::new();
    for (first, tokens, sequence) in runs {
        for offset in (0..tokens).step_by(most) {
            let count = most.min(tokens - offset);
            tiles.push([(first + offset) as i32, count as i32, sequence, 0]);
        }
    }
    tiles
}

#[cfg(test)]
mod tests {
    use super::tiles;

    #[test]
    fn tiles_cover_each_token_once_and_never_mix_sequences() {
        let tiles = tiles([(0, 45, 3), (45, 1, 0), (46, 2, 1)].into_iter(), 3);
        assert_eq!(
            tiles,
            [[0, 21, 3, 0], [21, 21, 3, 0], [42, 3, 3, 0], [45, 1, 0, 0], [46, 2, 1, 0]]
        );
    }

    #[test]
    fn group_as_large_as_a_tile_gets_one_token_each() {
        assert_eq!(tiles([(0, 2, 0)].into_iter(), 64), [[0, 1, 0, 0], [1, 1, 0, 0]]);
    }
}
