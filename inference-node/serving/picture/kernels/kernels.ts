/**
 * The kernels of inference-node/kernels/. Their memory is lent for one synchronous call and never
 * shrinks. Working sizes and strips of rows bound it (41 MB for any picture).
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';

type Address = number;

type Numbers<Count extends number, Row extends number[] = []> = Row['length'] extends Count
  ? Row
  : Numbers<Count, [...Row, number]>;
/** The kernel's source names and documents its parameters. */
type Kernel<Count extends number> = (...parameters: Numbers<Count>) => void;
type Answer<Count extends number> = (...parameters: Numbers<Count>) => number;

interface Kernels {
  readonly memory: { readonly buffer: ArrayBuffer; grow(pages: number): number };
  acrossColour: Kernel<6>;
  acrossCutOut: Kernel<5>;
  addVisible: Kernel<4>;
  adler32: Answer<3>;
  alongColour: Kernel<8>;
  alongVectors: Kernel<6>;
  answerRow: Kernel<11>;
  applySides: Kernel<11>;
  anyWithin: Answer<6>;
  averageBoxes: Kernel<6>;
  averageBoxesOver: Kernel<6>;
  averageLooks: Kernel<7>;
  averageModels: Kernel<9>;
  carryOn: Kernel<6>;
  castRow: Kernel<7>;
  countBoth: Answer<3>;
  countFrom: Answer<3>;
  countSymbols: Kernel<3>;
  dropFourth: Kernel<3>;
  enlarge: Kernel<4>;
  fadeCells: Kernel<9>;
  filterRows: Kernel<5>;
  fitBytes: Answer<2>;
  fitModels: Kernel<11>;
  freeFrom: Answer<0>;
  greyBytes: Answer<3>;
  halve: Kernel<4>;
  hearOpinion: Kernel<7>;
  joinCells: Answer<13>;
  joinShown: Kernel<5>;
  keptShares: Answer<4>;
  layOnto: Kernel<3>;
  layOver: Kernel<4>;
  loadRows: Kernel<15>;
  lower: Kernel<4>;
  meansOfSamples: Kernel<8>;
  meansOfCells: Kernel<9>;
  peaksOfCells: Kernel<8>;
  premultiply: Kernel<3>;
  raise: Kernel<4>;
  raiseTo: Kernel<3>;
  relax: Kernel<10>;
  resampleGrey: Kernel<14>;
  scaleBytes: Kernel<3>;
  storeRows: Answer<18>;
  sumCells: Kernel<4>;
  sumKnown: Kernel<8>;
  takeCertain: Kernel<6>;
  uncertainShares: Kernel<8>;
  widen: Kernel<6>;
  writeSymbols: Answer<5>;
}

declare const WebAssembly: {
  readonly Module: new (bytes: Uint8Array) => object;
  readonly Instance: new (module: object) => { readonly exports: unknown };
};

const PAGE_BYTES = 65_536;
/** Size of a vector. Lent memory begins at a multiple of it, and may be overrun by less than it. */
export const VECTOR_BYTES = 16;

const file = path.join(import.meta.dirname, 'kernels.wasm');
const instance = new WebAssembly.Instance(new WebAssembly.Module(readFileSync(file)));
export const kernels = instance.exports as Kernels;

let free = kernels.freeFrom();

/** Lends bytes of arbitrary content. May invalidate existing views of the memory. */
export type Borrow = (bytes: number) => Address;

/** @throws RangeError if the memory cannot grow further */
export function withMemory<T>(use: (borrow: Borrow) => T): T {
  const before = free;
  try {
    return use(borrow);
  } finally {
    free = before;
  }
}

function borrow(bytes: number): Address {
  const at = Math.ceil(free / VECTOR_BYTES) * VECTOR_BYTES;
  free = at + bytes + VECTOR_BYTES;
  const missing = free - kernels.memory.buffer.byteLength;
  if (missing > 0) kernels.memory.grow(Math.ceil(missing / PAGE_BYTES));
  return at;
}

/** Valid until the next `borrow`, as the views below. */
export function bytesAt(at: Address, length: number): Uint8Array {
  return new Uint8Array(kernels.memory.buffer, at, length);
}

export function pixelsAt(at: Address, length: number): Uint32Array {
  return new Uint32Array(kernels.memory.buffer, at, length);
}

export function floatsAt(at: Address, length: number): Float32Array {
  return new Float32Array(kernels.memory.buffer, at, length);
}

export function doublesAt(at: Address, length: number): Float64Array {
  return new Float64Array(kernels.memory.buffer, at, length);
}

export function borrowCopy(
  borrow: Borrow,
  values: Uint8Array | Int32Array | Float32Array,
): Address {
  const at = borrow(values.byteLength);
  bytesAt(at, values.byteLength).set(
    new Uint8Array(values.buffer, values.byteOffset, values.byteLength),
  );
  return at;
}
