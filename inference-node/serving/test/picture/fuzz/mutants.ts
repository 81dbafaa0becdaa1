/** A valid file with something wrong in it; the same for the same numbers. */
import { crc32 } from 'node:zlib';
import { at as elementAt } from '@matting/test-support/at.ts';
import type { Random } from '@matting/test-support/random.ts';

const CHANGES_MAX = 8;
const RANGE_BYTES_MAX = 64;
/** Edges of what fields of one to four bytes hold. */
const EDGES = [0, 1, 0x7f, 0x80, 0xff, 0x7fff, 0x8000, 0xffff, 0x7fffffff, 0x80000000, 0xffffffff];

type Change = (file: Buffer, random: Random, other: Buffer) => Buffer;

function flipBit(file: Buffer, random: Random): Buffer {
  const at = random.below(file.length);
  file[at] = elementAt(file, at) ^ (1 << random.below(8));
  return file;
}

function setByte(file: Buffer, random: Random): Buffer {
  file[random.below(file.length)] = random.below(256);
  return file;
}

/** Lengths, sizes and counts lie mostly near the start. */
function setEdge(file: Buffer, random: Random): Buffer {
  const reach = random.below(2) === 0 ? Math.min(512, file.length) : file.length;
  const bytes = random.pick([1, 2, 4]);
  const at = random.below(reach - bytes);
  const value = random.pick(EDGES) % 256 ** bytes;
  if (random.below(4) === 0) file.writeUIntLE(value, at, bytes);
  else file.writeUIntBE(value, at, bytes);
  return file;
}

function deleteRange(file: Buffer, random: Random): Buffer {
  const at = random.below(file.length);
  return Buffer.concat([
    file.subarray(0, at),
    file.subarray(at + 1 + random.below(RANGE_BYTES_MAX)),
  ]);
}

function repeatRange(file: Buffer, random: Random): Buffer {
  const at = random.below(file.length);
  const range = file.subarray(at, at + 1 + random.below(RANGE_BYTES_MAX));
  const times = 1 + random.below(20);
  return Buffer.concat([file.subarray(0, at), ...Array(times).fill(range), file.subarray(at)]);
}

function insertNoise(file: Buffer, random: Random): Buffer {
  const at = random.below(file.length);
  const noise = Buffer.from(
    Array.from({ length: 1 + random.below(RANGE_BYTES_MAX) }, () => random.below(256)),
  );
  return Buffer.concat([file.subarray(0, at), noise, file.subarray(at)]);
}

function cutShort(file: Buffer, random: Random): Buffer {
  return file.subarray(0, random.below(file.length));
}

function splice(file: Buffer, random: Random, other: Buffer): Buffer {
  return Buffer.concat([
    file.subarray(0, random.below(file.length)),
    other.subarray(random.below(other.length)),
  ]);
}

const CHANGES: readonly Change[] = [
  flipBit,
  flipBit,
  setByte,
  setByte,
  setEdge,
  setEdge,
  deleteRange,
  repeatRange,
  insertNoise,
  cutShort,
  splice,
];

export function mutate(file: Buffer, other: Buffer, random: Random): Buffer {
  let mutant: Buffer = Buffer.from(file);
  // Few changes come more often than many: what is hardly wrong gets furthest.
  const changes = 1 + random.below(1 + random.below(CHANGES_MAX));
  for (let i = 0; i < changes && mutant.length > 8; i++) {
    mutant = Buffer.from(random.pick(CHANGES)(mutant, random, other));
  }
  // Otherwise no change of a PNG would come further than its checksum.
  if (random.below(3) > 0) mendPngChecksums(mutant);
  return mutant;
}

function mendPngChecksums(file: Buffer): void {
  if (file.length < 8 || file.toString('latin1', 1, 4) !== 'PNG') return;
  for (let at = 8; at + 12 <= file.length; ) {
    const end = at + 8 + file.readUInt32BE(at);
    if (end + 4 > file.length) return;
    file.writeUInt32BE(crc32(file.subarray(at + 4, end)), end);
    at = end + 4;
  }
}
