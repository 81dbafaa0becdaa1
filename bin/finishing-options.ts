/** What can be asked of a cut-out on the command line: the fields of finishing, under their names. */
import { readFile, stat } from 'node:fs/promises';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { type FinishingField, parseFinishing } from '@matting/proto/contract/finishing/fields.ts';
import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import { BACKGROUND_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import type { Command } from 'commander';
import { SetupError } from './stack.ts';

/** By the field's name; each a text, as in a form. */
const OPTIONS = {
  background: ['--background <colour>', 'a CSS colour behind the subject'],
  background_url: ['--background-url <url>', 'a picture behind it, which the service fetches'],
  channels: ['--channels <channels>', 'rgba, or alpha: the matte alone'],
  crop_margin: ['--crop-margin <lengths>', 'around the subject: 1, 2 or 4 lengths, px or %'],
  scale: ['--scale <percent>', 'how much of the frame the subject takes, 10% to 100%'],
  position: ['--position <place>', 'of the subject in the frame: original, center, or percentages'],
  size_max_megapixels: ['--size-max-megapixels <n>', 'larger results are made smaller'],
  output_width: ['--output-width <pixels>', 'of the frame'],
  output_height: ['--output-height <pixels>', 'of the frame'],
} as const;

const USAGE_EXIT_CODE = 64;
const NO_INPUT_EXIT_CODE = 66;

/** As commander gives them. */
export interface GivenFinishing {
  readonly background?: string;
  readonly backgroundUrl?: string;
  readonly backgroundFile?: string;
  readonly channels?: string;
  readonly crop?: boolean;
  readonly cropMargin?: string;
  readonly scale?: string;
  readonly position?: string;
  readonly sizeMaxMegapixels?: string;
  readonly outputWidth?: string;
  readonly outputHeight?: string;
}

export interface FinishingWishes {
  /** By the field's name, as in a form. */
  readonly texts: ReadonlyMap<FinishingField, string>;
  readonly backgroundFile: Uint8Array | undefined;
}

export function addFinishingOptions(command: Command): Command {
  for (const [flags, about] of Object.values(OPTIONS)) command.option(flags, about);
  return command
    .option('--background-file <file>', 'a picture behind it, from here')
    .option('--crop', 'to the subject');
}

/**
 * Nonsense is told before anything is sent, in the words of the interface.
 * @throws SetupError, also where the file of the background cannot be used.
 */
export async function readFinishing(
  given: GivenFinishing,
  outputFormat: OutputFormat,
): Promise<FinishingWishes> {
  const texts: [FinishingField, string | undefined][] = [
    ['background', given.background],
    ['background_url', given.backgroundUrl],
    ['channels', given.channels],
    ['crop', given.crop === undefined ? undefined : String(given.crop)],
    ['crop_margin', given.cropMargin],
    ['scale', given.scale],
    ['position', given.position],
    ['size_max_megapixels', given.sizeMaxMegapixels],
    ['output_width', given.outputWidth],
    ['output_height', given.outputHeight],
  ];
  const named = texts.filter((entry): entry is [FinishingField, string] => entry[1] !== undefined);
  const { backgroundFile } = given;
  try {
    parseFinishing(new Map(named), { outputFormat, backgroundFile: backgroundFile !== undefined });
  } catch (error) {
    if (!(error instanceof ContractError)) throw error;
    throw new SetupError(error.message, USAGE_EXIT_CODE);
  }
  return {
    texts: new Map(named),
    backgroundFile: backgroundFile === undefined ? undefined : await readBackground(backgroundFile),
  };
}

async function readBackground(file: string): Promise<Uint8Array> {
  try {
    const { size } = await stat(file);
    if (size <= BACKGROUND_BYTES_MAX) return await readFile(file);
  } catch (error) {
    const { message } = error as Error;
    throw new SetupError(`the background cannot be read: ${message}`, NO_INPUT_EXIT_CODE);
  }
  const max = `${BACKGROUND_BYTES_MAX / 1_048_576} MiB`;
  throw new SetupError(`the background ${file} is over ${max}`, NO_INPUT_EXIT_CODE);
}
