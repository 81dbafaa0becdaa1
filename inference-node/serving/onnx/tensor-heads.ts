/**
 * Reads the types of an ONNX file's tensors and the names of its external data. It skips contents,
 * so neither nodes nor weights cost memory. Fields: onnx.proto of ONNX 1.17.
 */
import { closeSync, existsSync, fstatSync, openSync, readSync } from 'node:fs';
import path from 'node:path';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { ElementType } from './graph.ts';

type Kind =
  | 'model'
  | 'training'
  | 'graph'
  | 'function'
  | 'node'
  | 'attribute'
  | 'sparse'
  | 'tensor'
  | 'entry';

/** Messages that may hold a tensor, by their fields. */
const MESSAGES: Readonly<Record<Kind, Readonly<Record<number, Kind>>>> = {
  model: { 7: 'graph', 20: 'training', 25: 'function' },
  training: { 1: 'graph', 2: 'graph' },
  graph: { 1: 'node', 5: 'tensor', 15: 'sparse' },
  function: { 7: 'node', 11: 'attribute' },
  node: { 5: 'attribute' },
  attribute: { 5: 'tensor', 6: 'graph', 10: 'tensor', 11: 'graph', 22: 'sparse', 23: 'sparse' },
  sparse: { 1: 'tensor', 2: 'tensor' },
  tensor: { 13: 'entry' },
  entry: {},
};
const ENTRY_KEY = 1;
const ENTRY_VALUE = 2;
const TENSOR_TYPE = 2;

/** ONNX Runtime reads no file whose messages are nested deeper. */
const DEPTH_MAX = 100;
const FILES_MAX = 4096;
const NAME_BYTES_MAX = 1024;
const WINDOW_BYTES = 64 * 1024;

interface TensorHeads {
  readonly dataFiles: readonly string[];
  /** Most tensors of floats are float16. */
  readonly halves: boolean;
}

const FIELDS_A_TURN = 50_000;

/**
 * Yields every few milliseconds: a file of gigabytes may consist of fields of two bytes, which take
 * a minute, and Ctrl-C must work meanwhile.
 * @throws Error if it is not protobuf, or a bound is exceeded; the signal's reason
 */
export async function readTensorHeads(file: string, signal?: AbortSignal): Promise<TensorHeads> {
  using closed = new DisposableStack();
  const descriptor = closed.adopt(openSync(file, 'r'), closeSync);
  const turns = walk(new Reader(descriptor));
  for (;;) {
    const { done, value } = turns.next();
    if (done) return value;
    await nextTurn();
    signal?.throwIfAborted();
  }
}

function* walk(reader: Reader): Generator<void, TensorHeads> {
  let fields = 0;
  const files = new Set<string>();
  const types = new Map<number, number>();
  const open: { readonly kind: Kind; readonly end: number }[] = [];
  open.push({ kind: 'model', end: reader.bytes });
  let entry: { isLocation: boolean; readonly values: string[] } = { isLocation: false, values: [] };
  for (let inner = open.at(-1); inner !== undefined; inner = open.at(-1)) {
    if (reader.at >= inner.end) {
      open.pop();
      if (inner.kind === 'entry' && entry.isLocation)
        for (const name of entry.values) files.add(name);
      continue;
    }
    fields += 1;
    if (fields % FIELDS_A_TURN === 0) yield;
    const { field, value, length } = reader.head();
    const end = reader.at + length;
    if (end > inner.end) throw damaged();
    const kind = MESSAGES[inner.kind][field];
    if (kind !== undefined && length > 0) {
      if (open.length === DEPTH_MAX) throw new Error('its messages are too deep inside each other');
      open.push({ kind, end });
      if (kind === 'entry') entry = { isLocation: false, values: [] };
      continue;
    }
    if (inner.kind === 'tensor' && field === TENSOR_TYPE) {
      types.set(value, 1 + (types.get(value) ?? 0));
    } else if (inner.kind === 'entry') {
      // Fields come in either order, and repeatedly: readers of weights take the last.
      if (field === ENTRY_KEY && reader.text(length) === 'location') entry.isLocation = true;
      if (field === ENTRY_VALUE) entry.values.push(reader.text(length));
      if (files.size + entry.values.length > FILES_MAX) {
        throw new Error(`over ${FILES_MAX} files hold its weights`);
      }
    }
    reader.at = end;
  }
  const { float16, float32 } = ElementType;
  const halves = (types.get(float16) ?? 0) > (types.get(float32) ?? 0);
  return { dataFiles: [...files], halves };
}

function damaged(): Error {
  return new Error('it is no ONNX file, or is cut off');
}

class Reader {
  readonly bytes: number;
  readonly #descriptor: number;
  readonly #window = Buffer.alloc(WINDOW_BYTES);
  #from = 0;
  #filled = 0;
  at = 0;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
    this.bytes = fstatSync(descriptor).size;
  }

  head(): { readonly field: number; readonly value: number; readonly length: number } {
    const tag = this.#varint();
    const field = Math.floor(tag / 8);
    switch (tag % 8) {
      case 0:
        return { field, value: this.#varint(), length: 0 };
      case 1:
        return { field, value: 0, length: 8 };
      case 2:
        return { field, value: 0, length: this.#varint() };
      case 5:
        return { field, value: 0, length: 4 };
      default:
        throw damaged();
    }
  }

  text(length: number): string {
    if (length > NAME_BYTES_MAX) throw new Error('the name of a file of its weights is too long');
    const bytes = Buffer.alloc(length);
    readSync(this.#descriptor, bytes, 0, length, this.at);
    return bytes.toString('utf8');
  }

  #varint(): number {
    let value = 0;
    for (let factor = 1; factor <= 128 ** 9; factor *= 128) {
      const byte = this.#byte();
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
    throw damaged();
  }

  #byte(): number {
    if (this.at < this.#from || this.at >= this.#from + this.#filled) {
      this.#from = this.at;
      this.#filled = readSync(this.#descriptor, this.#window, 0, WINDOW_BYTES, this.at);
      if (this.#filled === 0) throw damaged();
    }
    const byte = this.#window[this.at - this.#from];
    this.at += 1;
    return byte ?? 0;
  }
}

/** Refuses data files outside of the graph's folder, or the graph as one. */
export function requireDataBeside(file: string, names: readonly string[]): void {
  for (const name of names) {
    const where = `its weights are in ${JSON.stringify(name)}`;
    if (name !== path.basename(name) || ['', '.', '..'].includes(name)) {
      throw new Error(`${where}, which is no file of its own folder`);
    }
    if (name === path.basename(file)) throw new Error(`${where}, which is the graph itself`);
    if (existsSync(path.join(path.dirname(file), name))) continue;
    throw new Error(`${where}, which is not there: fetch it too, into the same folder`);
  }
}
