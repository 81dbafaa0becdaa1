/** Reads PGM, PPM or PAM from djxl as 8 bits. A size other than the header's means damage. */
import type { FileHandle } from 'node:fs/promises';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import { readWhole } from '../children/limited-child.ts';
import { divideByAlpha, type Samples } from './colour/samples.ts';

const PIECE_PIXELS = 1_000_000;
const HEADER_BYTES_MAX = 200;

type Channels = 1 | 2 | 3 | 4;

interface PixelHeader {
  readonly channels: Channels;
  readonly sampleMax: number;
  readonly headerBytes: number;
}

/** Grey becomes three equal colours, missing alpha 255; the result is not premultiplied. */
export async function readRgba(
  output: FileHandle,
  size: Size,
  premultiplied: boolean,
): Promise<Uint8Array> {
  const rgba = new Uint8Array(size.width * size.height * 4);
  const take: TakeSamples = (samples, channels, pixel) => {
    spread(samples, channels, rgba.subarray(pixel * 4, pixel * 4 + PIECE_PIXELS * 4));
  };
  await readPieces(output, size, premultiplied, take);
  return rgba;
}

export async function readSamples(output: FileHandle, size: Size): Promise<Uint8Array> {
  const plane = new Uint8Array(size.width * size.height);
  await readPieces(output, size, false, (samples, channels, pixel) => {
    if (channels !== 1) throw wrongOutput();
    plane.set(samples, pixel);
  });
  return plane;
}

export async function readHeader(
  output: FileHandle,
  { width, height }: Size,
): Promise<PixelHeader> {
  const { buffer: head } = await output.read(Buffer.alloc(HEADER_BYTES_MAX), 0, undefined, 0);
  return parseHeader(head, width, height);
}

type TakeSamples = (samples: Uint8Array, channels: Channels, pixel: number) => void;

async function readPieces(
  output: FileHandle,
  size: Size,
  premultiplied: boolean,
  take: TakeSamples,
): Promise<void> {
  const { channels, sampleMax, headerBytes } = await readHeader(output, size);
  const pixels = size.width * size.height;
  const pixelBytes = channels * (sampleMax > 255 ? 2 : 1);
  const piece = Buffer.alloc(Math.min(PIECE_PIXELS, pixels) * pixelBytes);
  for (let done = 0; done < pixels; ) {
    const wanted = Math.min(PIECE_PIXELS, pixels - done);
    const read = piece.subarray(0, wanted * pixelBytes);
    const isThere = await readWhole(output, read, headerBytes + done * pixelBytes);
    if (!isThere) throw wrongOutput();
    const samples = sampleMax > 255 ? readWords(read) : read;
    if (premultiplied && (channels === 2 || channels === 4)) {
      divideByAlpha(samples, channels, sampleMax);
    }
    take(toBytes(samples, sampleMax), channels, done);
    done += wanted;
  }
}

function readWords(bytes: Buffer): Uint16Array {
  bytes.swap16();
  return new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2);
}

function toBytes(samples: Samples, sampleMax: number): Uint8Array {
  if (sampleMax === 255) return samples as Uint8Array;
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = (samples[i]! * 255) / sampleMax + 0.5;
  return bytes;
}

function wrongOutput(): ContractError {
  return new ContractError('PROCESSING_FAILED', 'The image is damaged or cannot be decoded.', {
    cause: new Error('djxl wrote another picture than the header says'),
  });
}

function parseHeader(head: Buffer, width: number, height: number): PixelHeader {
  const text = head.toString('latin1');
  const match =
    /^P(?<kind>[56])\n(?<width>\d+) (?<height>\d+)\n(?<max>\d+)\n/.exec(text) ??
    /^P7\nWIDTH (?<width>\d+)\nHEIGHT (?<height>\d+)\nDEPTH (?<depth>[1-4])\nMAXVAL (?<max>\d+)\n.*\nENDHDR\n/.exec(
      text,
    );
  const fields = match?.groups;
  const sampleMax = Number(fields?.max);
  const isSame = Number(fields?.width) === width && Number(fields?.height) === height;
  if (match === null || fields === undefined || !isSame || !(sampleMax >= 1)) throw wrongOutput();
  const channels = fields.kind === undefined ? Number(fields.depth) : fields.kind === '5' ? 1 : 3;
  return { channels: channels as Channels, sampleMax, headerBytes: match[0].length };
}

function spread(from: Uint8Array, channels: Channels, rgba: Uint8Array): void {
  const isGrey = channels <= 2;
  const hasAlpha = channels % 2 === 0;
  for (let at = 0, out = 0; out < rgba.length; at += channels, out += 4) {
    rgba[out] = from[at]!;
    rgba[out + 1] = isGrey ? from[at]! : from[at + 1]!;
    rgba[out + 2] = isGrey ? from[at]! : from[at + 2]!;
    rgba[out + 3] = hasAlpha ? from[at + channels - 1]! : 255;
  }
}
