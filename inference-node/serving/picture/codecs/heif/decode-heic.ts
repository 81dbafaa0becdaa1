import type { FileHandle } from 'node:fs/promises';
import {
  type HeifDecoder,
  moduleCommand,
  PROGRAM_LINKS,
  programCommand,
  withFiles,
} from '../../children/heif-decoder.ts';
import type { PlaneOrder } from '../../children/libheif-child.ts';
import {
  type ChildLimits,
  limitsFor,
  readAll,
  readWhole,
  requireRoom,
  runLimited,
} from '../../children/limited-child.ts';
import { withLinks } from '../../children/temporary-files.ts';
import { readPngSamples } from '../codec-sharp.ts';
import type { Samples } from '../colour/samples.ts';
import { damage, type HeicPicture, type HeicPlane, writePicture, writeTiles } from './heic-file.ts';

/**
 * RGBA as coded: not cropped, not turned, in the file's own colours; opaque without alpha.
 * @throws ContractError PROCESSING_FAILED
 */
export async function decodeHeic(
  picture: HeicPicture,
  decoder: HeifDecoder,
  limits?: ChildLimits,
): Promise<Samples> {
  const decode = decoder.kind === 'js' ? decodeByModule : decodeByProgram;
  const { width, height } = picture.colours;
  return await decode(picture, decoder, limits ?? limitsFor(width * height));
}

/** Single tiles only: libheif omits undecodable ones when it assembles a grid. */
async function decodeByModule(
  picture: HeicPicture,
  { file: module, within }: HeifDecoder,
  limits: ChildLimits,
): Promise<Samples> {
  const { colours, alpha } = picture;
  const isDeep = colours.bits > 8;
  const ofColours = orderOf(colours, 1);
  const ofAlpha = alpha && orderOf(alpha, 1 + colours.tiles.length);
  const command = moduleCommand({ module, colours: ofColours, alpha: ofAlpha, isDeep });
  return await withFiles(writeTiles(picture), async (input, output) => {
    const files = [input, output];
    const failure = await runLimited({ command, files, limits, within, onNode: true });
    if (failure !== undefined) throw await faultOf(failure, output);
    const samples = await readSamples(output, 4 * colours.width * colours.height, isDeep, 0);
    if (alpha === undefined) return samples;
    const alphaAt = samples.byteLength;
    const plane = await readSamples(output, alpha.width * alpha.height, isDeep, alphaAt);
    for (let i = 0; i < plane.length; i++) samples[4 * i + 3] = plane[i]!;
    return samples;
  });
}

async function faultOf({ message }: Error, output: FileHandle) {
  await requireRoom(output);
  return damage(message);
}

function orderOf({ tileSize, tiles: _, ...plane }: HeicPlane, firstId: number): PlaneOrder {
  return { ...plane, tileWidth: tileSize.width, tileHeight: tileSize.height, firstId };
}

async function readSamples(output: FileHandle, length: number, isDeep: boolean, position: number) {
  const bytes = new Uint8Array(length * (isDeep ? 2 : 1));
  if (!(await readWhole(output, bytes, position))) throw damage('it wrote less than a picture');
  return isDeep ? new Uint16Array(bytes.buffer) : bytes;
}

/** PNG is the program's only format with alpha and more than 8 bits. */
async function decodeByProgram(picture: HeicPicture, decoder: HeifDecoder, limits: ChildLimits) {
  const { within } = decoder;
  return await withFiles(writePicture(picture), async (input, output) => {
    const files = [input, output];
    const failure = await withLinks(PROGRAM_LINKS, async folder => {
      const command = programCommand(decoder, folder);
      return await runLimited({ command, files, limits, within });
    });
    if (failure !== undefined) throw await faultOf(failure, output);
    return await readPngSamples(await readAll(output), picture.colours);
  });
}
