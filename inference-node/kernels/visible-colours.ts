/**
 * Visible colours weighted by opacity: sums of cells, which colour-alpha.ts extends to where
 * nothing is visible, and the picture composited over the result.
 */
import { PIXEL, toBytes, toFloats } from './pixel';

/** @param starts first column of each cell, and the end */
export function addVisible(pixels: usize, starts: usize, cells: i32, sums: usize): void {
  for (let cell = 0; cell < cells; cell++, starts += 4, sums += PIXEL) {
    let sum = v128.load(sums);
    const end = <usize>load<i32>(starts, 4);
    for (let x = <usize>load<i32>(starts); x < end; x++) {
      const colour = toFloats(v128.load32_zero(pixels + 4 * x));
      const opacity = v128.shuffle<f32>(colour, colour, 3, 3, 3, 3);
      sum = f32x4.add(sum, f32x4.mul(f32x4.replace_lane(colour, 3, 1), opacity));
    }
    v128.store(sums, sum);
  }
}

/**
 * Changes pixels in place, but not their opacities. @param cells for each pixel its cell in
 * `beneath`, a row of colours
 */
export function layOver(pixels: usize, count: i32, cells: usize, beneath: usize): void {
  for (let x: usize = 0; x < <usize>count; x++) {
    const pixel = load<u32>(pixels + 4 * x);
    const opacity = pixel >>> 24;
    if (opacity === 255) continue;
    const under = v128.load(beneath + <usize>load<i32>(cells + 4 * x) * PIXEL);
    const colour = toFloats(i32x4.splat(pixel));
    const share = f32x4.splat(<f32>opacity / 255);
    const mixed = f32x4.add(under, f32x4.mul(f32x4.sub(colour, under), share));
    const bytes = i32x4.extract_lane(toBytes(mixed), 0);
    store<u32>(pixels + 4 * x, (bytes & 0xffffff) | (opacity << 24));
  }
}
