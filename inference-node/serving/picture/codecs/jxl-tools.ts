/**
 * libjxl's programs (Debian: libjxl-tools), for pictures that need more memory than WebAssembly
 * has, and for the black of CMYK, which libvips omits.
 */
import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  EXTRA_OUTPUT,
  INPUT,
  limitsFor,
  OUTPUT,
  requireRoom,
  runLimited,
  writeAll,
} from '../children/limited-child.ts';
import { type Links, openNameless, withLinks } from '../children/temporary-files.ts';
import { CJXL, DJXL } from '../makeable.ts';
import type { RawPixels } from '../rgba-picture.ts';
import { readHeader, readRgba, readSamples } from './djxl-output.ts';

const TARGET = 'pixels.ppm';
/**
 * If a file has extra channels besides alpha, djxl writes colours and alpha to ec0 and each other
 * channel to its own file, which it creates if there is no link.
 */
const LINKS: Links = {
  [TARGET]: OUTPUT,
  'pixels-ec0.ppm': OUTPUT,
  'pixels-ec1.pgm': EXTRA_OUTPUT,
  'pixels-ec2.pgm': EXTRA_OUTPUT,
};
export const DJXL_EXTRA_CHANNELS_MAX = 2;
/** djxl (0.7) prints this if it cannot write decoded samples. */
const UNWRITTEN = /bit depth does not (fit|match)/i;
const UNWRITTEN_DEPTH = [
  'UNSUPPORTED_IMAGE_FORMAT',
  'The JPEG XL image is too large for the depth of its samples. Send it with 8 or 16 bits.',
] as const;

/** Gives 8-bit RGBA, oriented, in the file's own colours, with straight alpha. */
export async function decodeWithDjxl(
  file: Buffer,
  size: Size,
  premultiplied = false,
  isFloat = false,
): Promise<Uint8Array> {
  const options = isFloat ? ['--bits_per_sample=16'] : [];
  return await runDjxl(file, size, output => readRgba(output, size, premultiplied), options);
}

interface Inks {
  readonly cmya: Uint8Array;
  readonly black: Uint8Array;
  readonly hasAlpha: boolean;
}

/** Black is never premultiplied. */
export async function decodeInksWithDjxl(
  file: Buffer,
  size: Size,
  premultiplied: boolean,
): Promise<Inks> {
  return await runDjxl(file, size, async (output, extra) => {
    const black = await readSamples(extra, size);
    const { channels } = await readHeader(output, size);
    return { cmya: await readRgba(output, size, premultiplied), black, hasAlpha: channels === 4 };
  });
}

async function runDjxl<Result>(
  file: Buffer,
  { width, height }: Size,
  read: (output: FileHandle, extra: FileHandle) => Promise<Result>,
  ownOptions: readonly string[] = [],
): Promise<Result> {
  await using input = await openNameless();
  await using output = await openNameless();
  await using extra = await openNameless();
  await writeAll(input, file);
  // djxl chooses the format by its target's name: PGM, PPM or PAM, as the picture needs. Version
  // 0.7 spoils 16-bit samples with --bits_per_sample. Only 32-bit samples, which PPM lacks, need
  // it.
  const options = ['--num_threads=1', '--quiet', ...ownOptions];
  const limits = limitsFor(width * height);
  const failure = await withLinks(LINKS, async folder => {
    const command = [DJXL, INPUT, path.join(folder, TARGET), ...options];
    return await runLimited({ command, files: [input, output, extra], limits });
  });
  if (failure !== undefined) {
    await requireRoom(output);
    if (UNWRITTEN.test(failure.message)) throw new ContractError(...UNWRITTEN_DEPTH);
    throw new ContractError('PROCESSING_FAILED', 'The image is damaged or cannot be decoded.', {
      cause: failure,
    });
  }
  return await read(output, extra);
}

interface CjxlOptions {
  /** 0: lossless. */
  readonly distance: number;
  readonly effort: number;
}

/** @throws Error if the program fails; the picture is not at fault */
export async function encodeWithCjxl(
  { data, width, height, channels }: RawPixels,
  { distance, effort }: CjxlOptions,
): Promise<Buffer> {
  await using input = await openNameless();
  await using output = await openNameless();
  const kind = channels === 4 ? 'RGB_ALPHA' : 'GRAYSCALE';
  const fields = `WIDTH ${width}\nHEIGHT ${height}\nDEPTH ${channels}\nMAXVAL 255`;
  await writeAll(input, Buffer.from(`P7\n${fields}\nTUPLTYPE ${kind}\nENDHDR\n`), data);
  const colours = channels === 4 ? 'RGB_D65_SRG_Rel_SRG' : 'Gra_D65_Rel_SRG';
  const quality = ['-d', String(distance), '-e', String(effort)];
  // Without -R 0 alpha is as lossy as the colours (cjxl 0.7).
  const options = [
    ...quality,
    '-R',
    '0',
    '-x',
    `color_space=${colours}`,
    '--num_threads=0',
    '--quiet',
  ];
  const command = [CJXL, INPUT, OUTPUT, ...options];
  const limits = limitsFor(width * height);
  const failure = await runLimited({ command, files: [input, output], limits });
  if (failure !== undefined) throw new Error(`cjxl failed: ${failure.message}`);
  return await output.readFile();
}
