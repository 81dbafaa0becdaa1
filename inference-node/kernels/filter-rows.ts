/**
 * Filters rows for PNG (ISO/IEC 15948, clause 9), all by Paeth's filter. Choosing one of the five
 * filters for each row takes twice the time and saves 0 to 2 % of a cut-out's bytes, 3 % of a
 * drawing's.
 */

const BYTES: usize = 16;
const PAETH: u8 = 4;

/**
 * Writes for each row the filter's number and the filtered bytes; up to 15 bytes after the last
 * become arbitrary. The row above the first precedes it in memory.
 * @param length bytes of a row
 */
export function filterRows(
  bytes: usize,
  length: i32,
  rows: i32,
  pixelBytes: i32,
  out: usize,
): void {
  const before = <usize>pixelBytes;
  for (let row = 0; row < rows; row++, out += <usize>length + 1) {
    store<u8>(out, PAETH);
    let to = out + 1;
    const end = bytes + <usize>length;
    // Left of a row all is 0, so the nearest byte is the one above.
    for (const first = bytes + before; bytes < first; bytes++, to++) {
      store<u8>(to, load<u8>(bytes) - load<u8>(bytes - <usize>length));
    }
    for (; bytes < end; bytes += BYTES, to += BYTES) {
      const over = bytes - <usize>length;
      const a = v128.load(bytes - before);
      const b = v128.load(over);
      const c = v128.load(over - before);
      const own = v128.load(bytes);
      const isClear = !v128.any_true(v128.or(v128.or(a, b), v128.or(c, own)));
      v128.store(to, isClear ? own : i8x16.sub(own, nearest(a, b, c)));
    }
    bytes = end;
  }
}

/**
 * Paeth's predictor of left a, above b, above left c: the nearest to a + b - c. If c is not between
 * a and b, its distance is the sum of theirs, so it is never the nearest.
 */
function nearest(a: v128, b: v128, c: v128): v128 {
  const fromA = difference(b, c);
  const fromB = difference(a, c);
  const between = i8x16.eq(i8x16.le_u(a, c), i8x16.le_u(c, b));
  const fromC = v128.bitselect(difference(fromA, fromB), i8x16.splat(-1), between);
  const takesA = v128.and(i8x16.le_u(fromA, fromB), i8x16.le_u(fromA, fromC));
  const rest = v128.bitselect(b, c, i8x16.le_u(fromB, fromC));
  return v128.bitselect(a, rest, takesA);
}

function difference(one: v128, other: v128): v128 {
  return v128.or(i8x16.sub_sat_u(one, other), i8x16.sub_sat_u(other, one));
}
