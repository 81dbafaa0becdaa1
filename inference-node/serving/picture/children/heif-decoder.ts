/**
 * The two that decode HEIC, which an operator installs: libheif-js beside the service, run by a
 * Node that may read that module alone, and the programs of libheif. Both run inside one fence.
 */
import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { DecodeOrder } from './libheif-child.ts';
import { INPUT, limitsFor, OUTPUT, readAll, runLimited, writeAll } from './limited-child.ts';
import { type Links, openNameless } from './temporary-files.ts';

export interface HeifDecoder {
  readonly kind: 'js' | 'system';
  /** The file of the module, or of the program. */
  readonly file: string;
  /** The version of libheif. */
  readonly version: string;
  /** The command that takes its network from it; empty: this machine allows none. */
  readonly within: readonly string[];
  /** The options of the program that its version knows. */
  readonly options: readonly string[];
}

/** @param file what it reads */
export async function withFiles<Result>(
  file: Buffer,
  use: (input: FileHandle, output: FileHandle) => Promise<Result>,
): Promise<Result> {
  await using input = await openNameless();
  await using output = await openNameless();
  await writeAll(input, file);
  return await use(input, output);
}

const CHILD = fileURLToPath(new URL('./libheif-child.ts', import.meta.url));
/** The bound is of V8's own heap: the decoded picture lies outside of it. */
const HEAP_MB = 64;

export function moduleCommand(order: DecodeOrder): string[] {
  const readable = [CHILD, path.join(path.dirname(order.module), '*')];
  const permissions = readable.map(place => `--allow-fs-read=${place}`);
  const options = ['--permission', ...permissions, `--max-old-space-size=${HEAP_MB}`];
  return [process.execPath, ...options, CHILD, JSON.stringify(order)];
}

/** Not in the program's help. Without it later versions leave out tiles that they cannot decode. */
const STRICT = '--strict';
/**
 * The program gets the options that its version's help names. Without the first, compression takes
 * most of a run's time; the others leave the cores to engines.
 */
const OPTIONS = { '--png-compression-level': 1, '--tile-threads': 1, '--codec-threads': 1 };

const TARGET = 'pixels.png';
/** The program chooses the format by the name of what it writes. */
export const PROGRAM_LINKS: Links = { [TARGET]: OUTPUT };

/** @param folder that has PROGRAM_LINKS */
export function programCommand({ file, options }: HeifDecoder, folder: string): string[] {
  return [file, STRICT, ...options, INPUT, path.join(folder, TARGET)];
}

/** Earlier versions of libheif-js have other functions. */
const MODULE_MIN = '1.19.0';

export function isAtLeast(version: string, least: string): boolean {
  return version.localeCompare(least, 'en', { numeric: true }) >= 0;
}

export type TriedDecoder = Pick<HeifDecoder, 'kind' | 'file' | 'within'>;

/** Loads the module, or starts the program, inside the fence. */
export async function tryDecoder({
  kind,
  file,
  within,
}: TriedDecoder): Promise<HeifDecoder | Error> {
  return await withFiles(Buffer.alloc(0), async (input, output) => {
    const shared = { files: [input, output], limits: limitsFor(0), within };
    const failure = await runLimited(
      kind === 'js'
        ? { ...shared, command: moduleCommand({ module: file }), onNode: true }
        : { ...shared, command: [file, '--help'], printed: output },
    );
    const text = (await readAll(output)).toString();
    if (failure !== undefined) return new Error(`${failure.message} ${text.slice(0, 200)}`);
    const version = /\d+\.\d+\.\d+/.exec(text)?.[0];
    if (version === undefined) return new Error(`it tells no version: ${text.slice(0, 100)}`);
    if (kind === 'js' && !isAtLeast(version, MODULE_MIN)) {
      return new Error(`it is ${version}; ${MODULE_MIN} is the first that can be used`);
    }
    const named = Object.entries(OPTIONS).filter(([name]) => text.includes(name));
    const options = named.map(([name, value]) => `${name}=${value}`);
    return { kind, file, version, within, options };
  });
}
