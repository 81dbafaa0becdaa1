/**
 * libvips codes alpha at the quality of the colours (up to 11 of 255 off at 90), so alpha is
 * encoded separately and losslessly, as the alpha of a black picture. A portrait of 12 MP (one
 * thread of an AMD EPYC) takes 1.6 s and 0.8 MB; together at 90, lossy, 1.1 s and 0.8 MB.
 */

import { type RawPixels, viewAsPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';
import { type CodedStrip, readCodedItems, writeAvif } from './files/avif-file.ts';

const QUALITY = 85;
const EFFORT_1_PIXELS_MAX = 1_000_000;
/**
 * Largest frame of any level of AV1 (annex A.3). Only larger pictures have strips: not every reader
 * supports grids.
 */
const FRAME_PIXELS_MAX = 35_651_584;
/** The encoder takes up to 40 bytes a pixel. */
const STRIP_PIXELS_MAX = 17_000_000;
/** Encoding colours and alpha in parallel takes half the time and twice the memory. */
const AT_ONCE_PIXELS_MAX = 17_000_000;

const ALPHA_BITS = 0xff000000;

export async function encodeAvif(
  { data, width, height }: RawPixels,
  quality = QUALITY,
): Promise<Buffer> {
  const pixels = width * height;
  const count = pixels <= FRAME_PIXELS_MAX ? 1 : Math.ceil(pixels / STRIP_PIXELS_MAX);
  const stripHeight = Math.ceil(height / count);
  const strips = [];
  for (let top = 0; top < height; top += stripHeight) {
    const strip = takeStrip(data, width, top, stripHeight);
    const raw: RawPixels = { data: strip, width, height: stripHeight, channels: 4 };
    strips.push(await encodeStrip(raw, { pixels, quality }));
  }
  return writeAvif({ width, height, strips, stripHeight });
}

function takeStrip(data: Buffer, width: number, top: number, height: number): Buffer {
  const rowBytes = width * 4;
  const there = data.subarray(top * rowBytes, (top + height) * rowBytes);
  const missing = height - there.length / rowBytes;
  if (missing === 0) return there;
  const lastRow = there.subarray(there.length - rowBytes);
  return Buffer.concat([there, ...Array<Buffer>(missing).fill(lastRow)]);
}

async function encodeStrip(
  raw: RawPixels,
  { pixels, quality }: { readonly pixels: number; readonly quality: number },
) {
  const effort = pixels <= EFFORT_1_PIXELS_MAX ? 1 : 0;
  const options = { effort, bitdepth: 8 } as const;
  const encodeColours = () =>
    openRaw(raw)
      .removeAlpha()
      .avif({ ...options, quality, chromaSubsampling: '4:4:4' })
      .toBuffer();
  // Quality 100 is lossless in the single plane; `lossless` would spend bytes on the black.
  const encodeAlpha = (data: Buffer) =>
    openRaw({ ...raw, data })
      .avif({ ...options, quality: 100, chromaSubsampling: '4:2:0' })
      .toBuffer();
  if (raw.width * raw.height <= AT_ONCE_PIXELS_MAX) {
    const alphaFile = encodeAlpha(blacken(Buffer.from(raw.data)));
    return await pair(...(await Promise.all([encodeColours(), alphaFile])));
  }
  const colours = await encodeColours();
  return await pair(colours, await encodeAlpha(blacken(raw.data)));
}

async function pair(coloursFile: Buffer, alphaFile: Buffer): Promise<CodedStrip> {
  const [colours] = await readCodedItems(coloursFile);
  const [, alpha] = await readCodedItems(alphaFile);
  if (colours === undefined || alpha === undefined) throw new Error('the encoder left out an item');
  return { colours, alpha };
}

function blacken(data: Buffer): Buffer {
  const pixels = viewAsPixels(data);
  for (let i = 0; i < pixels.length; i++) pixels[i]! &= ALPHA_BITS;
  return Buffer.from(pixels.buffer, pixels.byteOffset, pixels.byteLength);
}

export function encodeAvifPlane(pixels: RawPixels): Promise<Buffer> {
  return openRaw(pixels).avif({ lossless: true, effort: 0, bitdepth: 8 }).toBuffer();
}
