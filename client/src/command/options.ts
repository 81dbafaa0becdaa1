import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { MattingClient } from '../client.ts';
import { readImage } from '../files.ts';
import { FINISHING_OPTIONS } from '../finishing-fields.ts';
import type { MattingFields, OutputFormat } from '../types.ts';
import { CommandError, misuse, NO_INPUT_EXIT_CODE } from './command-error.ts';
import { loadApiKey } from './config.ts';

export const STANDARD_INPUT = '-';

const URL_DEFAULT = 'http://127.0.0.1:8080';
const CONCURRENCY_DEFAULT = 4;
/** Each picture in progress holds up to 50 MB. An account allows far more: 1000 open jobs. */
const CONCURRENCY_MAX = 64;
const GIVE_UP_MINUTES_DEFAULT = 60;
const GIVE_UP_MINUTES_MAX = 7 * 24 * 60;
/** The service's bound. A larger background would fail every picture. */
const BACKGROUND_BYTES_MAX = 10_485_760;

const ENDINGS: Readonly<Record<OutputFormat, string>> = {
  png: 'png',
  webp: 'webp',
  avif: 'avif',
  jxl: 'jxl',
  jpeg: 'jpg',
};
const FORMATS = Object.keys(ENDINGS) as OutputFormat[];

/** By name: the value (empty for a switch) and the description. */
type OptionTexts = Readonly<Record<string, readonly [value: string, about: string]>>;

const OPTIONS = {
  to: ['<folder>', 'folder for the results; made if needed'],
  url: ['<address>', `address of the service (default: ${URL_DEFAULT})`],
  'key-file': ['<file>', 'file with the API key (default: MATTING_API_KEY)'],
  recursive: ['', 'include subfolders'],
  concurrency: [
    '<n>',
    `pictures at once, 1 to ${CONCURRENCY_MAX} (default: ${CONCURRENCY_DEFAULT})`,
  ],
  'skip-existing': ['', 'skip a picture if a result with its name exists'],
  'full-names': ['', 'write photo.jpg.png for photo.jpg, not photo.png'],
  urls: ['<list>', 'picture addresses, one on each line of this file; the service downloads them'],
  run: ['<name>', 'a new name processes and charges every picture again'],
  'give-up': ['<minutes>', `longest time for a picture (default: ${GIVE_UP_MINUTES_DEFAULT})`],
  model: ['<name>', 'model or plan that the service offers'],
  'subject-box': ['<x1 y1 x2 y2>', 'where the subject is, in pixels or %'],
  'fail-without-subject': ['', 'fail a picture without a subject, free of charge'],
  format: ['<format>', `format of the results: ${FORMATS.join(', ')} (default: png)`],
  ...FINISHING_OPTIONS,
  version: ['', 'print the version'],
  help: ['', 'print this text (also -h)'],
} as const satisfies OptionTexts;

type OptionName = keyof typeof OPTIONS;
type SwitchName = {
  [Name in OptionName]: (typeof OPTIONS)[Name][0] extends '' ? Name : never;
}[OptionName];

export type GivenOptions = { readonly [Name in SwitchName]?: boolean } & {
  readonly [Name in Exclude<OptionName, SwitchName>]?: string;
};

export interface RemoveOptions {
  readonly files: readonly string[];
  /** The folder for the results. undefined: standard input to standard output. */
  readonly to: string | undefined;
  /** A file with addresses, instead of files. */
  readonly urls: string | undefined;
  readonly client: MattingClient;
  readonly recursive: boolean;
  readonly concurrency: number;
  readonly skipExisting: boolean;
  readonly fullNames: boolean;
  /** Part of the idempotency keys: with another value, pictures are charged again. */
  readonly run: string;
  /** Longest time for one picture. */
  readonly giveUpMs: number;
  readonly fields: MattingFields;
  /** The fields as text, part of the idempotency keys. */
  readonly fieldsText: string;
  /** The ending of results, without a dot. */
  readonly ending: string;
}

export function helpOf(name: string): string {
  const rows = Object.entries(OPTIONS).map(([option, [value, about]]) => {
    return `  ${`--${option} ${value}`.padEnd(28)}${about}`;
  });
  return `Usage: ${name} [options] <files...>
       ${name} [options] --urls <list>

Removes the backgrounds of pictures with a running service. Name pictures, folders,
or ${STANDARD_INPUT} to read standard input and write standard output.

${rows.join('\n')}

Set the API key in MATTING_API_KEY or in a --key-file, never on the command line.
After an interruption, run the same command again: it resumes and pays for no picture twice.
results.jsonl in the folder of the results lists what was made.`;
}

/** @throws CommandError: an unknown option or a missing value */
export function parseCommand(args: readonly string[]): {
  readonly files: readonly string[];
  readonly given: GivenOptions;
} {
  const types = Object.entries(OPTIONS).map(([name, [value]]) => {
    return [name, { type: value === '' ? 'boolean' : 'string' } as const] as const;
  });
  const help = { type: 'boolean', short: 'h' } as const;
  const options = { ...Object.fromEntries(types), help };
  try {
    const parsed = parseArgs({ args: [...args], options, allowPositionals: true });
    return { files: parsed.positionals, given: { ...parsed.values } as GivenOptions };
  } catch (error) {
    const [wrong = ''] = (error as Error).message.split('. ');
    const suggestion = nearOption(/^Unknown option '--([^']+)'/.exec(wrong)?.[1] ?? '');
    const hint = suggestion === undefined ? '' : ` (did you mean --${suggestion}?)`;
    throw misuse(`${wrong}${hint}; use --help to list the options`);
  }
}

/** undefined: more than a third of the letters differ. */
function nearOption(name: string): string | undefined {
  if (name.length > 32) return undefined;
  const [near] = Object.keys(OPTIONS)
    .map(option => ({ option, edits: editsBetween(name, option) }))
    .sort((a, b) => a.edits - b.edits);
  return near && near.edits <= near.option.length / 3 ? near.option : undefined;
}

/** Levenshtein distance. */
function editsBetween(from: string, to: string): number {
  let row = Array.from({ length: to.length + 1 }, (_, column) => column);
  for (const [index, letter] of [...from].entries()) {
    const next = [index + 1];
    for (const [column, other] of [...to].entries()) {
      const replaced = row[column]! + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, row[column + 1]! + 1, next[column]! + 1));
    }
    row = next;
  }
  return row.at(-1)!;
}

/** Not allowed with a list, whose pictures the service downloads. */
const OF_FILES = ['recursive', 'skip-existing', 'concurrency', 'full-names'] as const;

/** @throws CommandError */
export async function readRemoveOptions(
  files: readonly string[],
  given: GivenOptions,
): Promise<RemoveOptions> {
  if (given.urls !== undefined && files.length > 0) {
    throw misuse('--urls lists the pictures; name no files beside it');
  }
  if (given.urls !== undefined && given['background-file'] !== undefined) {
    throw misuse('--urls takes a background as --background-url');
  }
  const ofFiles = given.urls === undefined ? undefined : OF_FILES.find(name => name in given);
  if (ofFiles !== undefined) throw misuse(`--urls takes no --${ofFiles}`);
  if (files.includes(STANDARD_INPUT)) {
    if (files.length > 1)
      throw misuse(`${STANDARD_INPUT} reads standard input; name no other files beside it`);
    if (given.to !== undefined)
      throw misuse(`${STANDARD_INPUT} writes standard output; leave out --to`);
  } else if (given.to === undefined) {
    throw misuse('--to is missing; name the folder for the results');
  }
  const named = given.format === 'jpg' ? 'jpeg' : (given.format ?? 'png');
  const format = FORMATS.find(one => one === named);
  if (format === undefined) throw misuse(`--format must be one of ${FORMATS.join(', ')}`);
  const giveUp = whole(given, 'give-up', GIVE_UP_MINUTES_MAX) ?? GIVE_UP_MINUTES_DEFAULT;
  return {
    files,
    to: given.to,
    urls: given.urls,
    concurrency: whole(given, 'concurrency', CONCURRENCY_MAX) ?? CONCURRENCY_DEFAULT,
    giveUpMs: giveUp * 60_000,
    client: await openClient(given),
    recursive: given.recursive ?? false,
    skipExisting: given['skip-existing'] ?? false,
    fullNames: given['full-names'] ?? false,
    run: given.run ?? '',
    ...(await readFields(given, format)),
    ending: ENDINGS[format],
  };
}

/** The values stay as typed: every field takes a text, and the service checks it. */
async function readFields(
  given: GivenOptions,
  format: OutputFormat,
): Promise<Pick<RemoveOptions, 'fields' | 'fieldsText'>> {
  const { 'background-file': file, ...texts } = given;
  const names = (Object.keys(texts) as (keyof typeof texts)[]).filter(
    name => name === 'model' || name === 'subject-box' || name in FINISHING_OPTIONS,
  );
  const entries = names.map(name => [name.replaceAll('-', '_'), String(given[name])]);
  entries.push(['output_format', format]);
  if (given['fail-without-subject']) entries.push(['no_subject', 'fail']);
  const background = file === undefined ? undefined : await readBackground(file);
  const digest = background && createHash('sha256').update(background).digest('hex');
  const fields = Object.fromEntries(entries) as MattingFields;
  return {
    fields: background === undefined ? fields : { ...fields, background_file: background },
    fieldsText: JSON.stringify([...entries.sort(), digest ?? null]),
  };
}

/** @throws CommandError */
export async function readBackground(file: string): Promise<Uint8Array> {
  const background = await readImage(file).catch((error: Error) => {
    throw new CommandError(`cannot read the background: ${error.message}`, NO_INPUT_EXIT_CODE);
  });
  if (background.byteLength <= BACKGROUND_BYTES_MAX) return background;
  const max = `${BACKGROUND_BYTES_MAX / 1_048_576} MiB`;
  throw new CommandError(
    `the background ${file} is larger than ${max}; use a smaller one`,
    NO_INPUT_EXIT_CODE,
  );
}

async function openClient({ url, 'key-file': keyFile }: GivenOptions): Promise<MattingClient> {
  const apiKey = keyFile === undefined ? loadApiKey() : await readKey(keyFile);
  try {
    return new MattingClient({ baseUrl: url ?? URL_DEFAULT, apiKey });
  } catch (error) {
    // The message never contains the key.
    throw misuse((error as Error).message);
  }
}

async function readKey(keyFile: string): Promise<string> {
  const text = await readFile(keyFile, 'utf8').catch((error: NodeJS.ErrnoException) => {
    throw new CommandError(`cannot read the key file: ${error.message}`, NO_INPUT_EXIT_CODE);
  });
  const key = text.trim();
  if (key !== '') return key;
  throw new CommandError(`${keyFile} is empty; write the API key into it`, NO_INPUT_EXIT_CODE);
}

/** At least 1. undefined: not given. */
function whole(
  given: GivenOptions,
  name: 'concurrency' | 'give-up',
  max: number,
): number | undefined {
  const text = given[name];
  if (text === undefined) return undefined;
  const value = /^\d{1,9}$/.test(text) ? Number(text) : 0;
  if (value >= 1 && value <= max) return value;
  throw misuse(`--${name} must be a whole number from 1 to ${max}`);
}
