/** Which decoder of HEIC this machine has, tried once at a node's start, and what to say of it. */
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { fileURLToPath } from 'node:url';
import { SETPRIV, SHELL } from '../makeable.ts';
import { type HeifDecoder, isAtLeast, type TriedDecoder, tryDecoder } from './heif-decoder.ts';

export const HEIF_CHOICES = ['js', 'system', 'off'] as const;
export type HeifChoice = (typeof HEIF_CHOICES)[number];

/** The ways in which an operator can install a decoder. */
export const HEIF_WAYS = {
  js: 'libheif-js, installed beside the service,',
  system: "heif-dec or heif-convert, of Debian's libheif-examples,",
} as const;

interface HeifSearch {
  /** Undefined: the node cannot read HEIC. */
  readonly decoder: HeifDecoder | undefined;
  /** The decoders that are installed and do not work, and why. */
  readonly failures: readonly string[];
}

/** Tests have other places. */
export interface HeifPlaces {
  /** Modules are resolved from this file. */
  readonly modulesFrom: string;
  readonly programs: readonly string[];
}

const MODULE = 'libheif-js/wasm-bundle';
/** An operator's own build comes before Debian's; heif-convert is the name up to Debian 12. */
export const HEIF_PLACES: HeifPlaces = {
  modulesFrom: fileURLToPath(import.meta.url),
  programs: ['heif-dec', 'heif-convert'].flatMap(name => [
    `/usr/local/bin/${name}`,
    `/usr/bin/${name}`,
  ]),
};

/** @param choice undefined: what is found, in their order */
export async function findHeifDecoder(
  choice: HeifChoice | undefined,
  places = HEIF_PLACES,
): Promise<HeifSearch> {
  const failures: string[] = [];
  if (choice === 'off' || ![SETPRIV, SHELL, '/proc/self/fd'].every(existsSync)) {
    return { decoder: undefined, failures };
  }
  for (const kind of choice === undefined ? (['js', 'system'] as const) : [choice]) {
    const file = kind === 'js' ? resolveModule(places) : places.programs.find(existsSync);
    if (file === undefined) continue;
    const tried = file instanceof Error ? file : await tryWays({ kind, file });
    if (!(tried instanceof Error)) return { decoder: tried, failures };
    failures.push(`${file instanceof Error ? MODULE : file}: ${tried.message}`);
  }
  return { decoder: undefined, failures };
}

function resolveModule({ modulesFrom }: HeifPlaces): string | Error | undefined {
  try {
    return createRequire(modulesFrom).resolve(MODULE);
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'MODULE_NOT_FOUND'
      ? undefined
      : (error as Error);
  }
}

/** The program comes from util-linux; the second way is for users that are not root. */
const UNSHARE = '/usr/bin/unshare';
const WITHOUT_NETWORK = [
  [UNSHARE, '--net', '--'],
  [UNSHARE, '--net', '--map-root-user', '--'],
];

async function tryWays(installed: Omit<TriedDecoder, 'within'>): Promise<HeifDecoder | Error> {
  const ways = existsSync(UNSHARE) ? [...WITHOUT_NETWORK, []] : [[]];
  let failure = new Error('it was not tried');
  for (const within of ways) {
    // Rejects if TMPDIR cannot be used: then this decoder cannot, and the node can.
    const tried = await tryDecoder({ ...installed, within }).catch(reasonOf);
    if (!(tried instanceof Error)) return tried;
    failure = tried;
  }
  return failure;
}

function reasonOf(error: Error): Error {
  return error.cause instanceof Error
    ? new Error(`${error.message} ${error.cause.message}`)
    : error;
}

/** The first without the overflows of the heap that were found in 2026: a picture reaches them. */
export const LIBHEIF_MIN = '1.23.3';

export function isSafeLibheif(version: string): boolean {
  return isAtLeast(version, LIBHEIF_MIN);
}

/** Lists what an operator must know of the decoder, a line each; none: there is nothing to know. */
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
