import test from 'ava';
import { readAvifColour } from '../image-header/avif-colour.ts';
import { hasAssociatedAlpha } from '../image-header/jxl-alpha.ts';
import { BitWriter, box, ftyp, fullBox, jxlContainerOf, u16, u32 } from './image-header-samples.ts';

/** Value and bits, the lowest first. */
type Field = readonly [value: number, bits: number];

function codestream(...fields: readonly Field[]): Buffer {
  const bits = new BitWriter();
  for (const [value, count] of fields) bits.put(value, count);
  return Buffer.concat([Buffer.from([0xff, 0x0a]), bits.bytes()]);
}

/** 16 x 16; not all default. */
const SIZE: readonly Field[] = [
  [1, 1],
  [1, 5],
  [1, 3],
  [0, 1],
];
/** 8 bits, decoded with 16. */
const DEPTH: readonly Field[] = [
  [0, 3],
  [1, 1],
];
const NO_EXTRA: Field = [0, 1];
const ONE_CHANNEL: Field = [1, 2];
const named = (length: number): readonly Field[] => [
  [3, 2],
  [length - 48, 10],
  ...Array.from({ length }, (): Field => [0x61, 8]),
];
const alpha = (associated: number, name: readonly Field[] = [[0, 2]]): readonly Field[] => [
  // Not the default, of type alpha, 8 bits, of no other size.
  [0, 1],
  [0, 2],
  [0, 3],
  [0, 2],
  ...name,
  [associated, 1],
];
const DEFAULT_ALPHA: Field = [1, 1];
const two: readonly Field[] = [
  [2, 2],
  [0, 4],
];

const JXL: readonly [name: string, associated: boolean, fields: readonly Field[]][] = [
  ['all default', false, [...SIZE.slice(0, 3), [1, 1]]],
  ['no channels', false, [...SIZE, NO_EXTRA, ...DEPTH, [0, 2]]],
  ['alpha as it mostly is', false, [...SIZE, NO_EXTRA, ...DEPTH, ONE_CHANNEL, DEFAULT_ALPHA]],
  ['straight alpha', false, [...SIZE, NO_EXTRA, ...DEPTH, ONE_CHANNEL, ...alpha(0)]],
  ['associated alpha', true, [...SIZE, NO_EXTRA, ...DEPTH, ONE_CHANNEL, ...alpha(1)]],
  ['behind a long name', true, [...SIZE, NO_EXTRA, ...DEPTH, ONE_CHANNEL, ...alpha(1, named(900))]],
  [
    'of floating point',
    true,
    [...SIZE, NO_EXTRA, [1, 1], [1, 2], [4, 4], [1, 1], ONE_CHANNEL, ...alpha(1)],
  ],
  [
    'behind every extra field',
    true,
    [
      ...SIZE,
      [1, 1],
      // Orientation; intrinsic size; preview; an animation of any ticks and loops, without codes.
      [5, 3],
      [1, 1],
      [1, 1],
      [3, 5],
      [1, 3],
      [1, 1],
      [1, 1],
      [1, 2],
      [1, 3],
      [1, 1],
      [2, 2],
      [99, 10],
      [3, 2],
      [7, 10],
      [3, 2],
      [0, 32],
      [0, 1],
      ...DEPTH,
      ONE_CHANNEL,
      ...alpha(1),
    ],
  ],
  [
    'behind a depth and before another alpha',
    true,
    [...SIZE, NO_EXTRA, ...DEPTH, ...two, [0, 1], [1, 2], [0, 3], [0, 2], [0, 2], ...alpha(1)],
  ],
  [
    'behind a spot colour',
    true,
    [
      ...SIZE,
      NO_EXTRA,
      ...DEPTH,
      ...two,
      [0, 1],
      [2, 2],
      [0, 4],
      [0, 3],
      [0, 2],
      [0, 2],
      [0, 32],
      [0, 32],
      ...alpha(1),
    ],
  ],
];

for (const [name, associated, fields] of JXL) {
  test(`alpha that a JPEG XL is multiplied by › ${name}`, async t => {
    const bare = codestream(...fields);
    t.is(await hasAssociatedAlpha(bare), associated);
    const parts = [bare.subarray(0, 4), bare.subarray(4)];
    const file = jxlContainerOf(...parts.map((part, i) => box('jxlp', u32(i), part)));
    t.is(await hasAssociatedAlpha(file), associated);
    // What is cut off says nothing.
    for (let length = 0; length < bare.length - 1; length += 1) {
      t.false(await hasAssociatedAlpha(bare.subarray(0, length)));
    }
  });
}

test('alpha that a JPEG XL is multiplied by › no bytes are an error', async t => {
  for (let seed = 0; seed < 500; seed += 1) {
    const bytes = Buffer.from({ length: 40 });
    for (const at of bytes.keys()) bytes[at] = Math.imul(seed * 41 + at, 2654435761) >>> 24;
    bytes.writeUInt16BE(0xff0a);
    t.is(typeof (await hasAssociatedAlpha(bytes)), 'boolean');
  }
});

const avif = (...references: Buffer[]) =>
  Buffer.concat([
    ftyp('avif'),
    fullBox('meta', 0, fullBox('pitm', 0, u16(7)), ...references, box('iprp', box('ipco'))),
  ]);
const short = (type: string, from: number) => box(type, u16(from, 1, 8));
const long = (type: string, from: number) => box(type, u32(from), u16(1), u32(8));
const cases: [string, boolean, Buffer][] = [
  ['no references', false, avif()],
  ['another reference', false, avif(fullBox('iref', 0, short('auxl', 7)))],
  ['of another item', false, avif(fullBox('iref', 0, short('prem', 8)))],
  ['of the picture', true, avif(fullBox('iref', 0, short('auxl', 8), short('prem', 7)))],
  ['with long numbers', true, avif(fullBox('iref', 1, long('prem', 7)))],
  ['a box cut short', false, avif(fullBox('iref', 0, box('prem')))],
];
for (const [name, premultiplied, file] of cases) {
  test(`alpha that an AVIF is multiplied by › ${name}`, async t => {
    t.is((await readAvifColour(file)).premultiplied, premultiplied);
    for (let length = 0; length < file.length; length += 1) {
      await readAvifColour(file.subarray(0, length));
    }
  });
}
