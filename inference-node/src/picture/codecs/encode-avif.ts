/**
 * AVIF with the matte in it exactly. libvips gives alpha the quality of the colours (up to 11 of
 * 255 off at 90), so the two are encoded apart: colours at QUALITY, alpha without loss as the alpha
 * of a black picture, and put into one file (avif-file.ts). 12 MP of a portrait cut out (one thread
 * of an AMD EPYC): colours 0.74 s and 601 KB, alpha 0.89 s (most of it the black) and 226 KB; both
 * together at quality 90 with lossy alpha 1.1 s and 820 KB.
 */

import { viewAsPixels } from '../rgba-picture.ts';
import { openRaw } from './codec-sharp.ts';
import { type CodedItem, readCodedItems, writeAvif } from './files/avif-file.ts';
import type { RawPixels } from './raw-pixels.ts';

const QUALITY = 85;
/** Above this size 0, up to it 1, of 0 to 9. */
const EFFORT_1_PIXELS_MAX = 1_000_000;
/**
 * The largest frame of any level of AV1 (annex A.3): a larger one is a file that decoders may
 * refuse, so larger pictures come in strips. Up to it one frame, since not every reader knows
 * grids.
 */
const FRAME_PIXELS_MAX = 35_651_584;
/** Of a strip, where there are several: the encoder takes up to 40 bytes a pixel. */
const STRIP_PIXELS_MAX = 17_000_000;
/** Up to here colours and alpha are encoded at once: half the time for twice the memory. */
const AT_ONCE_PIXELS_MAX = 17_000_000;

const ALPHA_BITS = 0xff000000;

/** @param pixels with alpha; its memory is changed. */
export async function encodeAvif({ data, width, height }: RawPixels): Promise<Buffer> {
  const pixels = width * height;
  const count = pixels <= FRAME_PIXELS_MAX ? 1 : Math.ceil(pixels / STRIP_PIXELS_MAX);
  const stripHeight = Math.ceil(height / count);
  const strips = [];
  for (let top = 0; top < height; top += stripHeight) {
    const strip = takeStrip(data, width, top, stripHeight);
    const raw: RawPixels = { data: strip, width, height: stripHeight, channels: 4 };
    strips.push(await encodeStrip(raw, pixels));
  }
  return writeAvif({ width, height, strips, stripHeight });
}

/** Rows of the picture; where it ends before the strip does, its last row goes on. */
function takeStrip(data: Buffer, width: number, top: number, height: number): Buffer {
  const rowBytes = width * 4;
  const there = data.subarray(top * rowBytes, (top + height) * rowBytes);
  const missing = height - there.length / rowBytes;
  if (missing === 0) return there;
  const lastRow = there.subarray(there.length - rowBytes);
  return Buffer.concat([there, ...Array<Buffer>(missing).fill(lastRow)]);
}

async function encodeStrip(raw: RawPixels, picturePixels: number) {
  const effort = picturePixels <= EFFORT_1_PIXELS_MAX ? 1 : 0;
  const options = { effort, bitdepth: 8 } as const;
  const encodeColours = () =>
    openRaw(raw)
      .removeAlpha()
      .avif({ ...options, quality: QUALITY, chromaSubsampling: '4:4:4' })
      .toBuffer();
  // Quality 100 is without loss in its one plane; `lossless` would spend more on the black.
  const encodeAlpha = (data: Buffer) =>
    openRaw({ ...raw, data })
      .avif({ ...options, quality: 100, chromaSubsampling: '4:2:0' })
      .toBuffer();
  if (raw.width * raw.height <= AT_ONCE_PIXELS_MAX) {
    const files = [encodeColours(), encodeAlpha(blacken(Buffer.from(raw.data)))];
    return pair(await Promise.all(files));
  }
  const colours = await encodeColours();
  return pair([colours, await encodeAlpha(blacken(raw.data))]);
}

function pair([coloursFile, alphaFile]: readonly Buffer[]) {
  const colours: CodedItem | undefined = readCodedItems(coloursFile).at(0);
  const alpha: CodedItem | undefined = readCodedItems(alphaFile).at(1);
  if (colours === undefined || alpha === undefined) throw new Error('the encoder left out an item');
  return { colours, alpha };
}

/** In place: of every pixel the alpha alone. */
function blacken(data: Buffer): Buffer {
  const pixels = viewAsPixels(data);
  for (let i = 0; i < pixels.length; i++) pixels[i] &= ALPHA_BITS;
  return Buffer.from(pixels.buffer, pixels.byteOffset, pixels.byteLength);
}
