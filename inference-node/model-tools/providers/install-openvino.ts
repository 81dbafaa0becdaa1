/**
 * Installs OpenVINO from its wheel of PyPI, which is pinned by its checksum. No Python is needed:
 * the wheel is a zip archive, and of it engines need six libraries and the licences.
 */
import { createHash, randomBytes } from 'node:crypto';
import { open, readFile, rename, rm } from 'node:fs/promises';
import path from 'node:path';
import { makeDirectory, syncPath } from '@matting/program/files.ts';
import { diskError } from '@matting/serving/models/model-error.ts';
import {
  OPENVINO_FILES,
  OPENVINO_WHEEL,
  openvinoFolder,
  openvinoRefusal,
  ProviderError,
} from '@matting/serving/providers/provider-files.ts';
import { unzipSync } from 'fflate';
import { EnvHttpProxyAgent, fetch } from 'undici';

/** pip's own variable; it names a mirror where an operator has one. */
const INDEX_VARIABLE = 'PIP_INDEX_URL';
const INDEX = 'https://pypi.org/simple';
const INDEX_TYPE = 'application/vnd.pypi.simple.v1+json';
/** The index of a project is half a megabyte. */
const INDEX_BYTES_MAX = 32 * 1024 ** 2;
/** A network without a way out drops packets, and the start of a node waits for this. */
const CONNECT_MAX_MS = 3_000;
/** Enough for 59 MB over a slow line. */
const FETCH_MAX_MS = 900_000;

/** Licences and notices in the wheel, which are installed with the libraries. */
const NOTICE = /^openvino-[^/]+\.dist-info\/licenses\/(?:licensing\/)?([\w.-]+)$/;

export interface OpenvinoInstall {
  readonly providerDir: string;
  /** The wheel on the disk. Undefined: it is downloaded. */
  readonly from?: string | undefined;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly signal: AbortSignal;
  readonly onProgress?: ((receivedBytes: number, totalBytes: number) => void) | undefined;
}

/**
 * Returns the folder. What was installed before stays until the new files are whole.
 * @throws ProviderError, ModelError `disk`, the signal's reason
 */
export async function installOpenvino(options: OpenvinoInstall): Promise<string> {
  const refusal = openvinoRefusal();
  if (refusal !== undefined) throw new ProviderError(`OpenVINO cannot be installed: ${refusal}`);
  const folder = openvinoFolder(options.providerDir);
  const partial = `${folder}.partial-${process.pid}-${randomBytes(4).toString('hex')}`;
  try {
    // Before 59 MB are downloaded for a folder that takes none.
    makeDirectory(partial);
  } catch (error) {
    throw diskError(error, 'write', partial);
  }
  try {
    const wheel = await readWheel(options);
    for (const [name, bytes] of filesOf(wheel)) await writeSynced(path.join(partial, name), bytes);
    await rm(folder, { recursive: true, force: true });
    await rename(partial, folder);
    await syncPath(path.dirname(folder));
    return folder;
  } catch (error) {
    throw diskError(error, 'write', partial);
  } finally {
    await rm(partial, { recursive: true, force: true });
  }
}

async function readWheel(options: OpenvinoInstall): Promise<Uint8Array> {
  const { from } = options;
  const wheel =
    from === undefined ? await download(options) : await readFile(from).catch(asRead(from));
  if (createHash('sha256').update(wheel).digest('hex') === OPENVINO_WHEEL.sha256) return wheel;
  throw new ProviderError(
    `${from ?? OPENVINO_WHEEL.name} is not ${OPENVINO_WHEEL.name} of PyPI: its checksum is another`,
  );
}

function asRead(file: string) {
  return (error: unknown): never => {
    throw diskError(error, 'read', file);
  };
}

async function download({ env, signal, onProgress }: OpenvinoInstall): Promise<Uint8Array> {
  const index = (env[INDEX_VARIABLE] || INDEX).replace(/\/+$/, '');
  const dispatcher = new EnvHttpProxyAgent({ connect: { timeout: CONNECT_MAX_MS } });
  const call = { dispatcher, signal: AbortSignal.any([signal, AbortSignal.timeout(FETCH_MAX_MS)]) };
  const read = async (url: string, bytesMax: number, onBytes?: (received: number) => void) => {
    const answer = await fetch(url, { ...call, headers: { accept: `${INDEX_TYPE}, */*` } });
    if (!answer.ok || answer.body === null) throw new Error(`HTTP ${answer.status}`);
    const parts: Uint8Array[] = [];
    let received = 0;
    for await (const part of answer.body) {
      received += part.length;
      if (received > bytesMax) throw new Error('its answer is too long');
      parts.push(part);
      onBytes?.(received);
    }
    return Buffer.concat(parts);
  };
  const { name, bytes } = OPENVINO_WHEEL;
  try {
    const project = `${index}/openvino/`;
    const listed = JSON.parse(String(await read(project, INDEX_BYTES_MAX))) as {
      files?: readonly { filename: string; url: string }[];
    };
    const url = listed.files?.find(({ filename }) => filename === name)?.url;
    if (url === undefined) throw new Error('the index does not list it');
    return await read(new URL(url, project).href, bytes, received => onProgress?.(received, bytes));
  } catch (error) {
    signal.throwIfAborted();
    const { message, cause } = error as Error;
    const why = cause instanceof Error ? cause.message : message;
    throw new ProviderError(
      `${name} cannot be downloaded (${why}); download that file from PyPI and use --from`,
      error,
    );
  } finally {
    await dispatcher.destroy();
  }
}

/** By each file's name in the folder. The wheel is pinned: a missing file is our mistake. */
function filesOf(wheel: Uint8Array): Map<string, Uint8Array> {
  const nameOf = (entry: string) => OPENVINO_FILES.get(entry)?.name ?? NOTICE.exec(entry)?.[1];
  const entries = unzipSync(wheel, { filter: ({ name }) => nameOf(name) !== undefined });
  return new Map(Object.entries(entries).map(([entry, bytes]) => [nameOf(entry) ?? entry, bytes]));
}

async function writeSynced(file: string, bytes: Uint8Array): Promise<void> {
  await using handle = await open(file, 'wx');
  await handle.writeFile(bytes);
  await handle.sync();
}
