/**
 * Huffman codes of deflate blocks (RFC 1951). The kernels in inference-node/kernels/deflate.ts find
 * and write the symbols.
 */
import { borrowCopy, bytesAt, kernels, pixelsAt, withMemory } from '../kernels/kernels.ts';

const SYMBOLS = 286;
/** Four codes and the rest of a byte fit into 64 bits. */
const CODE_BITS_MAX = 14;
/** RFC 1951's order begins with 16, 17 and 18. The lengths 0 to 15 have codes of four bits. */
const HEADER_LENGTHS = [0, 0, 0, ...Array.from({ length: 16 }, () => 4)];
const HEADER_BYTES_MAX = 160;
/** An empty stored block ends at a whole byte: three bits, then these. */
const ALIGNED = [0, 0, 0xff, 0xff];

/** Whole bytes, valid until the next `borrow`. @param at address; the byte before it is read */
export function deflateRuns(at: number, bytes: number): Uint8Array {
  return withMemory(borrow => {
    const counts = borrow(4 * 4 * SYMBOLS);
    kernels.countSymbols(at, bytes, counts);
    const lengths = codeLengths(pixelsAt(counts, SYMBOLS).slice());
    const codes = borrowCopy(borrow, codesOf(lengths));
    const out = borrow(HEADER_BYTES_MAX + Math.ceil((CODE_BITS_MAX * bytes) / 8));
    const bits = writeHeader(lengths, bytesAt(out, HEADER_BYTES_MAX));
    const end = out + Math.ceil((kernels.writeSymbols(at, bytes, codes, out, bits) + 3) / 8);
    bytesAt(end, ALIGNED.length).set(ALIGNED);
    return bytesAt(out, end - out + ALIGNED.length);
  });
}

function writeHeader(lengths: Uint8Array, header: Uint8Array): number {
  header.fill(0);
  let bits = 0;
  const put = (value: number, count: number) => {
    for (let bit = 0; bit < count; bit++, bits++) {
      header[bits >> 3]! |= ((value >> bit) & 1) << (bits & 7);
    }
  };
  put(0b100, 3);
  // Numbers of codes for bytes and runs, distances and code lengths.
  put(SYMBOLS - 257, 5);
  put(0, 5);
  put(HEADER_LENGTHS.length - 4, 4);
  for (const length of HEADER_LENGTHS) put(length, 3);
  // A Huffman code begins with its highest bit, other numbers with their lowest.
  for (const length of [...lengths, 1]) put(reversed(length, 4), 4);
  return bits;
}

/** Each code has its length from bit 16 on. */
function codesOf(lengths: Uint8Array): Int32Array {
  const codes = new Int32Array(SYMBOLS);
  for (let length = 1, next = 0; length <= CODE_BITS_MAX; length++, next *= 2) {
    for (let symbol = 0; symbol < SYMBOLS; symbol++) {
      if (lengths[symbol] === length) codes[symbol] = reversed(next++, length) | (length << 16);
    }
  }
  return codes;
}

function reversed(value: number, bits: number): number {
  let result = 0;
  for (let bit = 0; bit < bits; bit++) result |= ((value >> bit) & 1) << (bits - 1 - bit);
  return result;
}

/**
 * A length is the logarithm of a symbol's share, rounded up; 0 for absent symbols. Unused codes go
 * to the symbols that lose most by rounding.
 */
function codeLengths(counts: Uint32Array): Uint8Array {
  const symbols = [...counts.keys()].filter(symbol => counts[symbol] !== 0);
  const sum = (values: readonly number[]) => values.reduce((all, value) => all + value, 0);
  const least = sum([...counts]) / 2 ** (CODE_BITS_MAX - 1);
  const weights = Array.from(counts, count => Math.max(count, least));
  const all = sum(symbols.map(symbol => weights[symbol]!));
  const lengths = new Uint8Array(SYMBOLS);
  for (const symbol of symbols) lengths[symbol] = Math.ceil(Math.log2(all / weights[symbol]!));
  const codes = (symbol: number) => 1 << (CODE_BITS_MAX - lengths[symbol]!);
  const losses = weights.map((weight, symbol) => weight / codes(symbol));
  symbols.sort((one, other) => losses[other]! - losses[one]!);
  let left = 2 ** CODE_BITS_MAX - sum(symbols.map(codes));
  while (left > 0) {
    for (const symbol of symbols) {
      if (codes(symbol) > left || lengths[symbol] === 1) continue;
      left -= codes(symbol);
      lengths[symbol]! -= 1;
    }
  }
  return lengths;
}
