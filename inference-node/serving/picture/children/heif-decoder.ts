/**
 * The HEIC decoders that an operator installs: libheif-js, run by a Node that may read only that
 * module, and libheif's programs.
 */
import type { FileHandle } from 'node:fs/promises';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import type { DecodeOrder } from './libheif-child.ts';
import { INPUT, limitsFor, OUTPUT, readAll, runLimited, writeAll } from './limited-child.ts';
import { type Links, openNameless } from './temporary-files.ts';

export interface HeifDecoder {
  readonly kind: 'js' | 'system';
  readonly file: string;
  readonly version: string;
  /** A command that starts the decoder without a network; empty: this machine allows none. */
  readonly within: readonly string[];
  readonly options: readonly string[];
}

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
/** Enough: decoded pictures lie outside of V8's heap. */
const HEAP_MB = 64;

export function moduleCommand(order: DecodeOrder): string[] {
  const readable = [CHILD, path.join(path.dirname(order.module), '*')];
  const permissions = readable.map(file => `--allow-fs-read=${file}`);
  const options = ['--permission', ...permissions, `--max-old-space-size=${HEAP_MB}`];
  return [process.execPath, ...options, CHILD, JSON.stringify(order)];
}

/** The program's help omits this option, without which newer versions skip undecodable tiles. */
const STRICT = '--strict';
/**
 * Passed if the version's help names them. By default compression takes most of a run, and the
 * threads take the engines' cores.
 */
const OPTIONS = { '--png-compression-level': 1, '--tile-threads': 1, '--codec-threads': 1 };

const TARGET = 'pixels.png';
export const PROGRAM_LINKS: Links = { [TARGET]: OUTPUT };

/** @param folder that holds PROGRAM_LINKS */
export function programCommand({ file, options }: HeifDecoder, folder: string): string[] {
  return [file, STRICT, ...options, INPUT, path.join(folder, TARGET)];
}

/** Earlier versions of libheif-js have other functions. */
const MODULE_MIN = '1.19.0';

export function isAtLeast(version: string, least: string): boolean {
  return version.localeCompare(least, 'en', { numeric: true }) >= 0;
}

export type TriedDecoder = Pick<HeifDecoder, 'kind' | 'file' | 'within'>;

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
