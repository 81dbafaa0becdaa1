const LANES = 4;
const LANE_INDEXES = f32x4(0, 1, 2, 3);

/**
 * Writes black pixels with dithered alpha, interpolated between the cells of a coarser row.
 * @param cells floats, 0 to 255; one more than `along` reaches
 * @param along position of the first pixel, in cells
 * @param dither twelve floats: eight that repeat, and the first four again
 * @param out for a multiple of four pixels
 */
export function castRow(
  cells: usize,
  along: f64,
  step: f64,
  first: i32,
  count: i32,
  dither: usize,
  out: usize,
): void {
  const offsets = f32x4.mul(f32x4.splat(<f32>step), LANE_INDEXES);
  for (let x = 0; x < count; x += LANES, out += 16, along += LANES * step) {
    const cell = <i32>along;
    const at = cells + 4 * <usize>cell;
    const share = f32x4.add(f32x4.splat(<f32>(along - <f64>cell)), offsets);
    let values = between(at, share);
    // Not all four pixels lie in the same cell.
    if (f32x4.extract_lane(share, 3) >= 1) {
      values = f32x4.replace_lane(values, 1, alphaAt(cells, along + step));
      values = f32x4.replace_lane(values, 2, alphaAt(cells, along + 2 * step));
      values = f32x4.replace_lane(values, 3, alphaAt(cells, along + 3 * step));
    }
    const raised = f32x4.add(values, v128.load(dither + 4 * <usize>((first + x) & 7)));
    v128.store(out, i32x4.shl(i32x4.trunc_sat_f32x4_s(raised), 24));
  }
}

function between(at: usize, share: v128): v128 {
  const one = load<f32>(at);
  return f32x4.add(f32x4.splat(one), f32x4.mul(f32x4.splat(load<f32>(at, 4) - one), share));
}

function alphaAt(cells: usize, along: f64): f32 {
  const cell = <i32>along;
  const at = cells + 4 * <usize>cell;
  const one = load<f32>(at);
  return one + (load<f32>(at, 4) - one) * <f32>(along - <f64>cell);
}
