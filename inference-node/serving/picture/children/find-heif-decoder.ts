import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { SETPRIV, SHELL } from '../makeable.ts';
import { type HeifDecoder, isAtLeast, type TriedDecoder, tryDecoder } from './heif-decoder.ts';

export const HEIF_CHOICES = ['js', 'system', 'off'] as const;
export type HeifChoice = (typeof HEIF_CHOICES)[number];

export const HEIF_WAYS = {
  js: 'libheif-js, installed beside the service,',
  system: "heif-dec or heif-convert, of Debian's libheif-examples,",
} as const;

interface HeifSearch {
  /** Undefined: the node cannot read HEIC. */
  readonly decoder: HeifDecoder | undefined;
  /** Installed decoders that do not work, and why. */
  readonly failures: readonly string[];
}

export interface HeifPaths {
  readonly modulesFrom: string;
  readonly programs: readonly string[];
}

const MODULE = 'libheif-js/wasm-bundle';
/** An operator's own build comes first; heif-convert is the name up to Debian 12. */
export const HEIF_PATHS: HeifPaths = {
  modulesFrom: fileURLToPath(import.meta.url),
  programs: ['heif-dec', 'heif-convert'].flatMap(name => [
    `/usr/local/bin/${name}`,
    `/usr/bin/${name}`,
  ]),
};

/** Tries each decoder once, at a node's start. @param choice undefined: the first that works */
export async function findHeifDecoder(
  choice: HeifChoice | undefined,
  paths = HEIF_PATHS,
): Promise<HeifSearch> {
  const failures: string[] = [];
  if (choice === 'off' || ![SETPRIV, SHELL, '/proc/self/fd'].every(existsSync)) {
    return { decoder: undefined, failures };
  }
  for (const kind of choice === undefined ? (['js', 'system'] as const) : [choice]) {
    const file = kind === 'js' ? resolveModule(paths) : paths.programs.find(existsSync);
    if (file === undefined) continue;
    const tried = file instanceof Error ? file : await tryWays({ kind, file });
    if (!(tried instanceof Error)) return { decoder: tried, failures };
    failures.push(`${file instanceof Error ? MODULE : file}: ${tried.message}`);
  }
  return { decoder: undefined, failures };
}

function resolveModule({ modulesFrom }: HeifPaths): string | Error | undefined {
  try {
    return createRequire(modulesFrom).resolve(MODULE);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND'
      ? undefined
      : (error as Error);
  }
}

/** From util-linux. Users other than root need --map-root-user. */
const UNSHARE = '/usr/bin/unshare';
const WITHOUT_NETWORK = [
  [UNSHARE, '--net', '--'],
  [UNSHARE, '--net', '--map-root-user', '--'],
];

async function tryWays(installed: Omit<TriedDecoder, 'within'>): Promise<HeifDecoder | Error> {
  const ways = existsSync(UNSHARE) ? [...WITHOUT_NETWORK, []] : [[]];
  let failure = new Error('it was not tried');
  for (const within of ways) {
    // If TMPDIR is unusable, only this decoder fails, not the node.
    const tried = await tryDecoder({ ...installed, within }).catch(withCause);
    if (!(tried instanceof Error)) return tried;
    failure = tried;
  }
  return failure;
}

function withCause(error: Error): Error {
  return error.cause instanceof Error
    ? new Error(`${error.message} ${error.cause.message}`)
    : error;
}

/** First version without the heap overflows of 2026, which a picture can reach. */
export const LIBHEIF_MIN = '1.23.3';

export function isSafeLibheif(version: string): boolean {
  return isAtLeast(version, LIBHEIF_MIN);
}

/** Remarks for the operator, a line each. */
export function remarksOf({ file, version, within }: HeifDecoder): string[] {
  const lines: string[] = [];
  if (!isSafeLibheif(version)) {
    lines.push(
      `HEIC is read by libheif ${version} (${file}), which has known holes: below ${LIBHEIF_MIN}`,
    );
  }
  if (within.length === 0) {
    lines.push('HEIC is decoded in a process that has the network of this machine');
  }
  return lines;
}
