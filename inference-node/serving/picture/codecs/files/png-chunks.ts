/**
 * Checks the checksums of a PNG's chunks (ISO/IEC 15948, 5.3). libpng refuses a critical chunk
 * whose checksum fails, but silently drops an ancillary one: transparency, a profile or an
 * orientation would be missing.
 */
import { crc32 } from 'node:zlib';
import { ContractError } from '#contract/errors.ts';

const SIGNATURE_BYTES = 8;
/** Length, type and CRC. */
const CHUNK_FRAME_BYTES = 12;
/** Chunks checked; libpng keeps no more than 1000. */
const CHUNKS_MAX = 4096;
/** Chunks that change no pixel, and critical ones, which libpng checks. */
const UNCHECKED = new Set(
  'IHDR PLTE IDAT IEND tEXt zTXt iTXt tIME pHYs hIST sPLT bKGD oFFs pCAL sCAL sTER fdAT'.split(' '),
);

/** @throws ContractError PROCESSING_FAILED */
export function requirePngChunks(file: Buffer): void {
  let offset = SIGNATURE_BYTES;
  for (let chunk = 0; chunk < CHUNKS_MAX && offset + CHUNK_FRAME_BYTES <= file.length; chunk++) {
    const end = offset + CHUNK_FRAME_BYTES + file.readUInt32BE(offset);
    const type = file.toString('latin1', offset + 4, offset + 8);
    // libpng reports what is cut short.
    if (type === 'IEND' || end > file.length) return;
    if (!UNCHECKED.has(type)) {
      const crc = crc32(file.subarray(offset + 4, end - 4));
      if (crc !== file.readUInt32BE(end - 4)) {
        throw new ContractError('PROCESSING_FAILED', `the image is damaged in its chunk ${type}`);
      }
    }
    offset = end;
  }
}
