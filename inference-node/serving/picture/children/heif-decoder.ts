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
  /** Of the module, or the program. */
  readonly file: string;
  /** Of libheif. */
  readonly version: string;
  /** What takes its network from it; empty: nothing that does is allowed on this machine. */
  readonly within: readonly string[];
  /** Of the program: those that its version knows. */
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
/** V8's own heap: what is decoded lies outside of it. */
const HEAP_MB = 64;

export function moduleCommand(order: DecodeOrder): string[] {
  const readable = [CHILD, path.join(path.dirname(order.module), '*')];
  const permissions = readable.map(place => `--allow-fs-read=${place}`);
  const options = ['--permission', ...permissions, `--max-old-space-size=${HEAP_MB}`];
  return [process.execPath, ...options, CHILD, JSON.stringify(order)];
}

/** Its help does not name it. Without it later versions leave out tiles that they cannot decode. */
const STRICT = '--strict';
/**
 * Those that a version's help names are given. Without the first most of the time of a run goes
 * into compression; the others leave the cores to engines.
 */
const OPTIONS = { '--png-compression-level': 1, '--tile-threads': 1, '--codec-threads': 1 };

const TARGET = 'pixels.png';
/** The program chooses the format by the name of what it writes. */
export const PROGRAM_LINKS: Links = { [TARGET]: OUTPUT };

/** @param folder that has PROGRAM_LINKS */
export function programCommand({ file, options }: HeifDecoder, folder: string): string[] {
  return [file, STRICT, ...options, INPUT, path.join(folder, TARGET)];
}

/** Of libheif-js: those before have other functions. */
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
