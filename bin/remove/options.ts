/** `matting remove` as it is typed: its options and what is wrong with them before anything is sent. */
import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { type Command, InvalidArgumentError, Option } from 'commander';
import { MattingClient, type MattingFields, type OutputFormat } from 'matting-client/src/index.ts';
import { loadCallerConfig } from '../config.ts';
import { addFinishingOptions, type GivenFinishing, readFinishing } from '../finishing-options.ts';
import { SetupError } from '../stack.ts';

export const STANDARD_INPUT = '-';

const CONCURRENCY_DEFAULT = 4;
/** Each holds a picture of up to 50 MB. An account may have 1000 jobs in flight. */
const CONCURRENCY_MAX = 64;
const GIVE_UP_MINUTES_DEFAULT = 60;
const GIVE_UP_MINUTES_MAX = 7 * 24 * 60;
/** Of a file with a key; a key has some 50. */
const KEY_BYTES_MAX = 4096;
const USAGE_EXIT_CODE = 64;
const NO_INPUT_EXIT_CODE = 66;

/** What results are written as, and the ending of their files. */
const ENDINGS: Readonly<Record<OutputFormat, string>> = {
  png: 'png',
  webp: 'webp',
  avif: 'avif',
  jxl: 'jxl',
  jpeg: 'jpg',
};

/** As commander gives them. */
export interface GivenOptions extends GivenFinishing {
  readonly to?: string;
  readonly url: string;
  readonly keyFile?: string;
  readonly recursive?: boolean;
  readonly concurrency: number;
  readonly skipExisting?: boolean;
  readonly fullNames?: boolean;
  readonly run?: string;
  readonly giveUp: number;
  readonly format: OutputFormat;
  readonly model?: string;
}

export interface RemoveOptions {
  readonly files: readonly string[];
  /** Undefined: standard input to standard output. */
  readonly to: string | undefined;
  readonly client: MattingClient;
  readonly recursive: boolean;
  readonly concurrency: number;
  readonly skipExisting: boolean;
  readonly fullNames: boolean;
  /** Goes into the keys: another run pays anew. */
  readonly run: string;
  /** Of one picture. */
  readonly giveUpMs: number;
  readonly fields: MattingFields;
  /** What `fields` ask for, as a text that goes into the keys. */
  readonly asked: string;
  /** Of the files that are written, without a dot. */
  readonly ending: string;
}

export const REMOVE_HELP = `
The key of the service is in MATTING_API_KEY or in --key-file, never on the command line.
A run that was ended goes on with the same command, and pays no picture twice: results.jsonl in
the folder of the results says what was made of what. docs/remove.md has the rest.`;

export function addRemoveOptions(command: Command): Command {
  const format = new Option('--format <format>', 'what the results are written as');
  command
    .argument('<files...>', `images, folders, or ${STANDARD_INPUT}: standard input to output`)
    .option('--to <folder>', 'where the results go, made where it is not there')
    .option('--url <address>', 'the service', 'http://127.0.0.1:8080')
    .option('--key-file <file>', 'holds the API key; else MATTING_API_KEY does')
    .option('--recursive', 'folders with all that is below them')
    .option('--concurrency <n>', 'pictures at once', whole(1, CONCURRENCY_MAX), CONCURRENCY_DEFAULT)
    .option('--skip-existing', 'leave alone what has a result of its name, whatever made it')
    .option('--full-names', 'photo.jpg becomes photo.jpg.png, not photo.png')
    .option('--run <name>', 'another name makes, and pays, every picture anew')
    .option(
      '--give-up <minutes>',
      'how long a picture may take, with all waiting',
      whole(1, GIVE_UP_MINUTES_MAX),
      GIVE_UP_MINUTES_DEFAULT,
    )
    .option('--model <name>', 'which model or plan of those that the service offers')
    .addOption(format.choices(Object.keys(ENDINGS)).default('png'));
  return addFinishingOptions(command);
}

/** @throws SetupError, ConfigError */
export async function readRemoveOptions(
  files: readonly string[],
  given: GivenOptions,
): Promise<RemoveOptions> {
  if (files.includes(STANDARD_INPUT)) {
    if (files.length > 1) throw misuse(`${STANDARD_INPUT} stands alone: other files have names`);
    if (given.to !== undefined) throw misuse(`--to is not for ${STANDARD_INPUT}: it has no name`);
  } else if (given.to === undefined) {
    throw misuse('--to says where the results go');
  }
  const wishes = await readFields(given);
  return {
    files,
    to: given.to,
    client: await openClient(given),
    recursive: given.recursive ?? false,
    concurrency: given.concurrency,
    skipExisting: given.skipExisting ?? false,
    fullNames: given.fullNames ?? false,
    run: given.run ?? '',
    giveUpMs: given.giveUp * 60_000,
    ...wishes,
    ending: ENDINGS[given.format],
  };
}

async function readFields(given: GivenOptions): Promise<Pick<RemoveOptions, 'fields' | 'asked'>> {
  const { texts, backgroundFile } = await readFinishing(given, given.format);
  const entries = [...texts, ['output_format', given.format]];
  if (given.model !== undefined) entries.push(['model', given.model]);
  const digest = backgroundFile && createHash('sha256').update(backgroundFile).digest('hex');
  // Every field of the interface takes a text.
  const fields = Object.fromEntries(entries) as MattingFields;
  return {
    fields: backgroundFile === undefined ? fields : { ...fields, background_file: backgroundFile },
    asked: JSON.stringify([...entries.sort(), digest ?? null]),
  };
}

async function openClient({ url, keyFile }: GivenOptions): Promise<MattingClient> {
  const apiKey = keyFile === undefined ? loadCallerConfig().apiKey : await readKey(keyFile);
  try {
    return new MattingClient({ baseUrl: url, apiKey });
  } catch (error) {
    // Its message names what is wrong, never the key.
    throw misuse((error as Error).message);
  }
}

async function readKey(keyFile: string): Promise<string> {
  const text = await readFile(keyFile, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new SetupError(`the key file cannot be read: ${error.message}`, NO_INPUT_EXIT_CODE);
  });
  const key = text.trim();
  if (key !== '' && key.length <= KEY_BYTES_MAX) return key;
  throw new SetupError(`${keyFile} holds no API key`, NO_INPUT_EXIT_CODE);
}

/** A whole number of an option. */
function whole(min: number, max: number): (text: string) => number {
  return text => {
    const value = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
    if (value >= min && value <= max) return value;
    throw new InvalidArgumentError(`It must be a whole number, ${min} to ${max}.`);
  };
}

export function misuse(message: string): SetupError {
  return new SetupError(message, USAGE_EXIT_CODE);
}
