/**
 * Filters rows for PNG (ISO/IEC 15948, clause 9): of the five filters of a row the one whose
 * bytes, read as signed, have the smallest sum of absolute values, as the standard advises (12.8).
 */

const BYTES: usize = 16;
const LANES = i8x16(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);

/**
 * A row lies at `row`, that above at `above`; before each there are `pixelBytes` zeros, behind each
 * zeros up to a multiple of 16. Writes the filter's number and its bytes; up to 15 bytes behind
 * them become arbitrary.
 * @param length bytes of the row.
 */
export function filterRow(
  row: usize,
  above: usize,
  length: i32,
  pixelBytes: i32,
  out: usize,
): void {
  const end = row + <usize>length;
  let none = i32x4.splat(0);
  let sub = none;
  let up = none;
  let average = none;
  let paeth = none;
  const before = <usize>pixelBytes;
  for (let at = row, over = above; at < end; at += BYTES, over += BYTES) {
    const x = v128.load(at);
    const a = v128.load(at - before);
    const b = v128.load(over);
    // Bytes behind the row's end would count otherwise.
    const within = i8x16.lt_u(LANES, i8x16.splat(<i8>min(end - at, BYTES)));
    none = addSizes(none, x);
    sub = addSizes(sub, v128.and(i8x16.sub(x, a), within));
    up = addSizes(up, i8x16.sub(x, b));
    average = addSizes(average, v128.and(i8x16.sub(x, mean(a, b)), within));
    const predicted = nearest(a, b, v128.load(over - before));
    paeth = addSizes(paeth, v128.and(i8x16.sub(x, predicted), within));
  }
  let filter = 0;
  let least = total(none);
  filter = total(sub) < least ? 1 : filter;
  least = min(least, total(sub));
  filter = total(up) < least ? 2 : filter;
  least = min(least, total(up));
  filter = total(average) < least ? 3 : filter;
  least = min(least, total(average));
  filter = total(paeth) < least ? 4 : filter;
  store<u8>(out, <u8>filter);
  write(row, above, end, before, filter, out + 1);
}

function write(row: usize, above: usize, end: usize, before: usize, filter: i32, out: usize): void {
  for (let at = row, over = above; at < end; at += BYTES, over += BYTES, out += BYTES) {
    const x = v128.load(at);
    const a = v128.load(at - before);
    const b = v128.load(over);
    let expected = i32x4.splat(0);
    if (filter === 1) expected = a;
    else if (filter === 2) expected = b;
    else if (filter === 3) expected = mean(a, b);
    else if (filter === 4) expected = nearest(a, b, v128.load(over - before));
    v128.store(out, i8x16.sub(x, expected));
  }
}

/** Adds the absolute values of signed bytes. */
function addSizes(sum: v128, bytes: v128): v128 {
  const pairs = i16x8.extadd_pairwise_i8x16_u(i8x16.abs(bytes));
  return i32x4.add(sum, i32x4.extadd_pairwise_i16x8_u(pairs));
}

function total(sums: v128): i32 {
  return (
    i32x4.extract_lane(sums, 0) +
    i32x4.extract_lane(sums, 1) +
    i32x4.extract_lane(sums, 2) +
    i32x4.extract_lane(sums, 3)
  );
}

/** Rounded down, which avgr does not. */
function mean(a: v128, b: v128): v128 {
  const odd = v128.and(v128.xor(a, b), i8x16.splat(1));
  return i8x16.sub(i8x16.avgr_u(a, b), odd);
}

/**
 * Paeth's: of left, above and above left the one nearest to left + above - above left, in bytes.
 * Where left and above lie on one side of above left, that sum is farther from above left than
 * either difference, unless both are 0.
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
