/**
 * The arithmetic for every pixel, in WebAssembly: inference-node/kernels/ has its source. One
 * instance a process; its memory is lent for one synchronous call and never shrinks, bounded by
 * working sizes and strips (41 MB for any picture).
 */
import { readFileSync } from 'node:fs';
import path from 'node:path';

type Address = number;

interface Kernels {
  readonly memory: { readonly buffer: ArrayBuffer; grow(pages: number): number };
  freeFrom(): Address;
  fitBytes(side: number, radius: number): number;
  fitModels(
    guide: Address,
    alpha: Address,
    width: number,
    height: number,
    left: number,
    top: number,
    right: number,
    bottom: number,
    radius: number,
    epsilon: number,
    scratch: Address,
    out: Address,
  ): void;
  mixModels(first: Address, second: Address, share: number, out: Address, count: number): void;
  answerRow(
    models: Address,
    firsts: Address,
    seconds: Address,
    shares: Address,
    pixels: Address,
    alpha: Address,
    count: number,
    certain: number,
    blend: number,
  ): void;
  sumKnown(
    guide: Address,
    alpha: Address,
    width: number,
    height: number,
    sure: number,
    cellPx: number,
    subject: Address,
    background: Address,
  ): void;
  sumCells(fine: Address, width: number, height: number, coarse: Address): void;
  carryOn(
    cells: Address,
    width: number,
    height: number,
    coarser: Address,
    coarserWeight: number,
  ): void;
  applySides(
    guide: Address,
    alpha: Address,
    width: number,
    height: number,
    sure: number,
    cellPx: number,
    subject: Address,
    background: Address,
    distanceHalf: number,
    offLine: number,
    trust: number,
  ): void;
  relax(
    seen: Address,
    foreground: Address,
    background: Address,
    width: number,
    height: number,
    rounds: number,
    softOnly: boolean,
    smoothness: number,
    gradientWeight: number,
  ): void;
  addVisible(pixels: Address, starts: Address, cells: number, sums: Address): void;
  layOver(pixels: Address, count: number, cells: Address, beneath: Address): void;
  addToCells(pixels: Address, alpha: Address, starts: Address, cells: number, seen: Address): void;
  meanOfCells(starts: Address, cells: number, rows: number, seen: Address): void;
  halve(fine: Address, width: number, height: number, coarse: Address): void;
  enlarge(coarse: Address, fine: Address, width: number, height: number): void;
  loadRow(
    pixels: Address,
    alpha: Address,
    count: number,
    cells: Address,
    gridForeground: Address,
    gridBackground: Address,
    clearTo: number,
    opaqueFrom: number,
    seen: Address,
    foreground: Address,
    background: Address,
  ): void;
  takeCertain(
    seen: Address,
    count: number,
    clearTo: number,
    opaqueFrom: number,
    subject: Address,
    ground: Address,
  ): void;
  storeRow(
    pixels: Address,
    alpha: Address,
    count: number,
    foreground: Address,
    background: Address,
    clearTo: number,
    opaqueFrom: number,
    cells: Address,
    subject: Address,
    ground: Address,
    likeSubject: number,
    likeGround: number,
    differMin: number,
  ): void;
  uncertainShares(
    alpha: Address,
    width: number,
    height: number,
    reach: number,
    below: number,
    above: number,
    counts: Address,
    out: Address,
  ): void;
  averageBoxes(
    pixels: Address,
    stride: number,
    width: number,
    columns: number,
    rows: number,
    out: Address,
  ): void;
  averageBoxesOver(
    pixels: Address,
    stride: number,
    width: number,
    columns: number,
    rows: number,
    grey: number,
    out: Address,
  ): void;
  alongColour(
    row: Address,
    starts: Address,
    weights: Address,
    taps: number,
    count: number,
    out: Address,
  ): void;
  alongGrey(
    row: Address,
    starts: Address,
    weights: Address,
    taps: number,
    count: number,
    out: Address,
  ): void;
  acrossGrey(rows: Address, weights: Address, taps: number, count: number, out: Address): void;
  acrossColour(
    rows: Address,
    weights: Address,
    taps: number,
    count: number,
    bytes: number,
    out: Address,
  ): void;
  dropFourth(pixels: Address, count: number, out: Address): void;
  premultiply(pixels: Address, count: number, out: Address): void;
  filterRow(row: Address, above: Address, length: number, pixelBytes: number, out: Address): void;
  alongVectors(
    row: Address,
    starts: Address,
    weights: Address,
    taps: number,
    count: number,
    out: Address,
  ): void;
  acrossCutOut(rows: Address, weights: Address, taps: number, count: number, out: Address): void;
  layOnto(above: Address, count: number, beneath: Address): void;
  castRow(
    cells: Address,
    along: number,
    step: number,
    first: number,
    count: number,
    dither: Address,
    out: Address,
  ): void;
  countFrom(bytes: Address, count: number, from: number): number;
  joinCells(
    pixels: Address,
    width: number,
    rows: number,
    top: number,
    cellPx: number,
    edge: number,
    sums: Address,
    peaks: Address,
    above: Address,
    runs: Address,
    cellsOfPeak: Address,
    parts: Address,
    count: number,
  ): number;
}

/** Node's own types lack it. */
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

/** Lends bytes of arbitrary content. Existing views of the memory may become invalid. */
export type Borrow = (bytes: number) => Address;

/** @throws RangeError when the memory cannot grow further. */
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

/** A view that is valid until the next `borrow`. */
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
