/** A child decodes the coded tiles alone; crop, rotation and colours are applied here. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import { type HeifFacts, readHeif } from '@matting/proto/contract/image-header/heif-file.ts';
import type { HeifDecoder } from '../../children/heif-decoder.ts';
import { freePixels, type OpenedPicture } from '../../rgba-picture.ts';
import { convertByProfile } from '../colour/convert-icc.ts';
import { divideByAlpha, type Samples } from '../colour/samples.ts';
import { colourOfCicp, convertToSrgb } from '../colour/source-colour.ts';
import { decodeHeic } from './decode-heic.ts';
import { damage, readHeic } from './heic-file.ts';

/** @throws ContractError UNSUPPORTED_IMAGE_FORMAT, PROCESSING_FAILED, NODE_INCAPABLE */
export async function openHeic(
  file: Buffer,
  decoder: HeifDecoder | undefined,
): Promise<OpenedPicture> {
  if (decoder === undefined)
    throw new ContractError('NODE_INCAPABLE', 'This node does not read HEIC.');
  const facts = await readHeif(file);
  const { width, height } = facts;
  const stored = { width: facts.storedWidth, height: facts.storedHeight };
  return { width, height, stored, readPixels: () => readPixels(file, facts, decoder) };
}

async function readPixels(file: Buffer, facts: HeifFacts, decoder: HeifDecoder) {
  const picture = await readHeic(file);
  const { width, height } = picture.colours;
  if (width !== facts.storedWidth || height !== facts.storedHeight)
    throw damage('its sizes differ');
  const samples = await decodeHeic(picture, decoder);
  if (facts.hasAlpha && facts.premultiplied) divideByAlpha(samples);
  const pixels = await toSrgbPixels(samples, width, facts);
  return { rgba: show(pixels, facts), translucent: facts.hasAlpha };
}

async function toSrgbPixels(samples: Samples, width: number, { cicp, profile }: HeifFacts) {
  const colour = cicp && colourOfCicp(cicp);
  const isByNumbers = profile === undefined || colour?.toneMaps;
  if (colour !== undefined && isByNumbers) return convertToSrgb(samples, colour);
  return await convertByProfile(samples, width, profile);
}

/** Steps through the stored picture in the order of the shown one. */
interface Walk {
  readonly first: number;
  readonly right: number;
  readonly down: number;
}

/** Crops, then mirrors and turns. Frees the given pixels if the result differs. */
function show(pixels: Uint32Array, { storedWidth, crop, orientation, width, height }: HeifFacts) {
  const isWhole = crop.width * crop.height === pixels.length;
  if (isWhole && orientation === 1) return pixels;
  const { first, right, down } = walkOf(storedWidth, crop, orientation);
  const shown = new Uint32Array(width * height);
  for (let y = 0, out = 0; y < height; y++) {
    for (let x = 0, at = first + y * down; x < width; x++, at += right) shown[out++] = pixels[at]!;
  }
  freePixels(pixels);
  return shown;
}

/** Orientations from 5 on swap the sides; the others differ by the corner that comes first. */
function walkOf(
  stride: number,
  { left, top, width, height }: HeifFacts['crop'],
  orientation: HeifFacts['orientation'],
): Walk {
  const corner = { left: top * stride + left, right: top * stride + left + width - 1 };
  const below = (height - 1) * stride;
  switch (orientation) {
    case 1:
      return { first: corner.left, right: 1, down: stride };
    case 2:
      return { first: corner.right, right: -1, down: stride };
    case 3:
      return { first: corner.right + below, right: -1, down: -stride };
    case 4:
      return { first: corner.left + below, right: 1, down: -stride };
    case 5:
      return { first: corner.left, right: stride, down: 1 };
    case 6:
      return { first: corner.left + below, right: -stride, down: 1 };
    case 7:
      return { first: corner.right + below, right: -stride, down: -1 };
    default:
      return { first: corner.right, right: stride, down: -1 };
  }
}
