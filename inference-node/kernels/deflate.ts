/**
 * Compresses bytes as Huffman codes and runs of one byte (RFC 1951), without searching for repeats.
 * A symbol is a byte, the end of the block, or the length of a run of the preceding byte.
 */

const BYTES: usize = 16;
const SYMBOLS: usize = 286;
const TABLE: usize = 4 * SYMBOLS;
const END_OF_BLOCK: usize = 256;
const RUN_MIN: usize = 8;
const RUN_MAX: usize = 258;
const ADLER_BASE: u64 = 65_521;
/** With more, lanes could overflow. */
const VECTORS_MAX: usize = 256;

/** Length of the run of the byte before `at`; 0 if shorter than 8. */
function runAt(at: usize, end: usize): usize {
  const byte = load<u8>(at - 1);
  const bytes = i8x16.splat(<i8>byte);
  if (at + RUN_MIN > end || load<i64>(at) !== i64x2.extract_lane(bytes, 0)) return 0;
  const last = min(end, at + RUN_MAX);
  let to = at + RUN_MIN;
  while (to + BYTES <= last && i8x16.all_true(i8x16.eq(v128.load(to), bytes))) to += BYTES;
  while (to < last && load<u8>(to) === byte) to++;
  return to - at;
}

/** Bits after a run's symbol that give its exact length. */
function extraBits(run: usize): usize {
  return run === RUN_MAX ? 0 : <usize>max(0, 29 - clz(<i32>run - 3));
}

function symbolOf(run: usize): usize {
  const extra = extraBits(run);
  return run === RUN_MAX ? SYMBOLS - 1 : END_OF_BLOCK + 1 + 4 * extra + ((run - 3) >> extra);
}

function count(counts: usize, symbol: usize): void {
  const at = counts + 4 * symbol;
  store<u32>(at, load<u32>(at) + 1);
}

/**
 * Also reads the byte before `bytes`.
 * @param counts four tables of a number for each of the 286 symbols; the first gets the sums. With
 * one table, counts of equal bytes would wait for each other.
 */
export function countSymbols(bytes: usize, length: i32, counts: usize): void {
  memory.fill(counts, 0, 4 * TABLE);
  const end = bytes + <usize>length;
  while (bytes < end) {
    const run = runAt(bytes, end);
    if (run > 0) count(counts, symbolOf(run));
    // Takes four bytes at once, since looking for a run at each takes longer.
    const to = run > 0 ? bytes + run : min(end, bytes + 4);
    if (run === 0)
      for (let table = counts; bytes < to; table += TABLE) count(table, load<u8>(bytes++));
    bytes = to;
  }
  count(counts, END_OF_BLOCK);
  for (const last = counts + TABLE; counts < last; counts += 4) {
    const others = load<u32>(counts + TABLE) + load<u32>(counts + 2 * TABLE);
    store<u32>(counts, load<u32>(counts) + others + load<u32>(counts + 3 * TABLE));
  }
}

/**
 * Returns the number of bits in `out`, and zeroes up to eight bytes after them.
 * @param codes each has its length, at most 14, from bit 16 on
 * @param bits number of bits already in `out`
 */
export function writeSymbols(
  bytes: usize,
  length: i32,
  codes: usize,
  out: usize,
  bits: i32,
): usize {
  const end = bytes + <usize>length;
  let to = out + <usize>(bits >> 3);
  let held = <usize>bits & 7;
  let buffer = <u64>load<u8>(to);
  while (bytes < end) {
    const run = runAt(bytes, end);
    if (run > 0) {
      const code = load<u32>(codes + 4 * symbolOf(run));
      const extra = extraBits(run);
      const rest = <u64>((run - 3) & ((1 << extra) - 1));
      buffer |= (<u64>(code & 0xffff) | (rest << (code >> 16))) << held;
      // The only distance, 1, has the code 0 of one bit.
      held += <usize>(code >> 16) + extra + 1;
      bytes += run;
    } else {
      for (const last = min(end, bytes + 4); bytes < last; bytes++) {
        const code = load<u32>(codes + 4 * <usize>load<u8>(bytes));
        buffer |= (<u64>(code & 0xffff)) << held;
        held += code >> 16;
      }
    }
    store<u64>(to, buffer);
    to += held >> 3;
    buffer >>= held & ~7;
    held &= 7;
  }
  const code = load<u32>(codes + 4 * END_OF_BLOCK);
  store<u64>(to, buffer | ((<u64>(code & 0xffff)) << held));
  return 8 * (to - out) + held + (code >> 16);
}

/** Continues zlib's checksum `sum` (RFC 1950). */
export function adler32(bytes: usize, length: i32, sum: u32): u32 {
  let a = <u64>(sum & 0xffff);
  let b = <u64>(sum >> 16);
  const end = bytes + <usize>length;
  while (bytes + BYTES <= end) {
    const vectors = min(VECTORS_MAX, (end - bytes) / BYTES);
    let sums = i32x4.splat(0);
    let before = sums;
    let weighted = sums;
    for (const to = bytes + BYTES * vectors; bytes < to; bytes += BYTES) {
      before = i32x4.add(before, sums);
      const data = v128.load(bytes);
      if (!v128.any_true(data)) continue;
      const low = i16x8.extend_low_i8x16_u(data);
      const high = i16x8.extend_high_i8x16_u(data);
      sums = i32x4.add(sums, i32x4.extadd_pairwise_i16x8_u(i16x8.add(low, high)));
      weighted = i32x4.add(weighted, i32x4.dot_i16x8_s(low, i16x8(16, 15, 14, 13, 12, 11, 10, 9)));
      weighted = i32x4.add(weighted, i32x4.dot_i16x8_s(high, i16x8(8, 7, 6, 5, 4, 3, 2, 1)));
    }
    b += <u64>(BYTES * vectors) * a + <u64>BYTES * sumOfLanes(before) + sumOfLanes(weighted);
    a += sumOfLanes(sums);
  }
  for (; bytes < end; bytes++) {
    a += load<u8>(bytes);
    b += a;
  }
  return ((<u32>(b % ADLER_BASE)) << 16) | <u32>(a % ADLER_BASE);
}

function sumOfLanes(lanes: v128): u64 {
  const pairs = i64x2.add(i64x2.extend_low_i32x4_u(lanes), i64x2.extend_high_i32x4_u(lanes));
  return <u64>i64x2.extract_lane(pairs, 0) + <u64>i64x2.extract_lane(pairs, 1);
}
