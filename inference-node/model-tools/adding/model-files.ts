import { constants, copyFile, stat } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { hashFile, WholeFile } from '@matting/serving/models/cache-files.ts';
import {
  FILE_BYTES_MAX,
  FILE_NAME_FORM,
  type ModelSource,
  type WeightsFile,
} from '@matting/serving/models/manifest.ts';
import { diskError, ModelError, printable } from '@matting/serving/models/model-error.ts';
import { readTensorHeads } from '@matting/serving/onnx/tensor-heads.ts';
import { requireOnnx } from '../probing/not-onnx.ts';
import { type AddressClient, describeUrl, InterruptedError } from '../weights/address-client.ts';
import { type Downloaded, downloadFromAny } from '../weights/download.ts';
import { fileNameOf, pinAddress } from './pin-address.ts';
import { findStored, linkOrCopy, type ModelFolders, type StagingFolder } from './staging-folder.ts';

export type ModelLocation =
  | { readonly type: 'file'; readonly path: string }
  | { readonly type: 'address'; readonly url: string; readonly mirrors: readonly string[] };

interface WantedGraph {
  readonly name?: string | undefined;
  readonly bytes?: number | undefined;
  readonly sha256?: string | undefined;
}

export interface FilesContext {
  readonly staging: StagingFolder;
  readonly folders: ModelFolders;
  readonly client: AddressClient;
  readonly signal: AbortSignal;
  readonly say: (line: string) => void;
  readonly onProgress: (
    file: string,
    receivedBytes: number,
    totalBytes: number | undefined,
  ) => void;
}

interface BroughtFiles {
  readonly source: ModelSource;
  /** The graph first. */
  readonly files: readonly [WeightsFile, ...WeightsFile[]];
}

/** A large graph has its weights in one file next to it. Nobody publishes one for each tensor. */
const DATA_FILES_MAX = 8;

/** @throws ModelError, which says what the file is if it is not a graph */
export async function bringFiles(
  location: ModelLocation,
  wanted: WantedGraph,
  context: FilesContext,
): Promise<BroughtFiles> {
  const { staging, say } = context;
  if (location.type === 'file') {
    const name = wanted.name ?? fileNameOf(basename(location.path));
    await requireOnnx(location.path, 'settings');
    const graph = await bringOwn(location.path, name, wanted, staging);
    const data: WeightsFile[] = [];
    for (const other of await dataFilesOf(staging.path(name), name, context.signal)) {
      data.push(await bringOwn(join(dirname(location.path), other), other, {}, staging));
    }
    return { source: { type: 'file' }, files: [graph, ...data] };
  }
  const pinned = await pinAddress(context.client, location.url, context.signal).catch(error => {
    if (!(error instanceof InterruptedError)) throw error;
    return { url: location.url, moves: true, revision: undefined };
  });
  const name = wanted.name ?? fileNameOf(new URL(location.url).pathname);
  const urls = [pinned.url, ...location.mirrors];
  const graph = await bring(urls, name, { ...wanted, isGraph: true }, context);
  if (pinned.moves && wanted.sha256 === undefined) {
    say(
      `warning: ${describeUrl(new URL(location.url))} may be another file tomorrow, and is pinned to` +
        ' the one of now: when it has changed it is not fetched again',
    );
  }
  const data: WeightsFile[] = [];
  for (const other of await dataFilesOf(staging.path(name), name, context.signal)) {
    const dataUrls = urls.map(url => new URL(other, url).href);
    data.push(await bring(dataUrls, other, { isGraph: false }, context));
  }
  const { url, revision } = pinned;
  const mirrors = location.mirrors.length > 0 ? { mirrors: location.mirrors } : {};
  const source = { type: 'address', url, ...mirrors, ...(revision && { revision }) } as const;
  return { source, files: [graph, ...data] };
}

/** Copies, so that the operator's file stays as it is. */
async function bringOwn(
  path: string,
  name: string,
  { sha256: wanted }: WantedGraph,
  staging: StagingFolder,
): Promise<WeightsFile> {
  const to = staging.path(name);
  try {
    const { size: bytes } = await stat(path);
    if (bytes > FILE_BYTES_MAX) {
      throw new ModelError('settings', `${path} is larger than ${FILE_BYTES_MAX} bytes`);
    }
    await copyFile(path, to, constants.COPYFILE_FICLONE);
    const sha256 = await hashFile(to);
    if (sha256 === (wanted ?? sha256)) return { name, bytes, sha256 };
    const why = `its sha256 is ${sha256}, not ${wanted}; check the file`;
    throw new ModelError('settings', `${path}: ${why}`);
  } catch (error) {
    throw diskError(error, 'read', path);
  }
}

async function bring(
  urls: readonly string[],
  name: string,
  wanted: WantedGraph & { readonly isGraph: boolean },
  { staging, folders, client, signal, onProgress }: FilesContext,
): Promise<WeightsFile> {
  const { sha256, bytes, isGraph } = wanted;
  const stored = sha256 === undefined ? undefined : await findStored(sha256, folders);
  const path = staging.path(name);
  if (stored !== undefined && sha256 !== undefined) {
    await linkOrCopy(stored, path);
    return { name, bytes: (await stat(path)).size, sha256 };
  }
  await using file = await WholeFile.create(path);
  const got: Downloaded = await downloadFromAny(
    urls,
    file,
    { bytesMax: FILE_BYTES_MAX, bytes, sha256, isGraph },
    { client, signal, onProgress: (received, total) => onProgress(name, received, total) },
  );
  await file.commit();
  return { name, bytes: got.bytes, sha256: got.sha256 };
}

async function dataFilesOf(path: string, graph: string, signal: AbortSignal) {
  const refuse = (why: string, cause?: unknown) =>
    new ModelError('prepare', printable(`${graph}: ${why}`), cause);
  let names: readonly string[];
  try {
    names = (await readTensorHeads(path, signal)).dataFiles;
  } catch (error) {
    signal.throwIfAborted();
    throw refuse((error as Error).message, error);
  }
  if (names.length > DATA_FILES_MAX) {
    throw refuse(
      `its weights are in ${names.length} files, over ${DATA_FILES_MAX}: export it anew`,
    );
  }
  for (const name of names) {
    if (FILE_NAME_FORM.test(name) && name !== graph) continue;
    const own = name === graph ? 'the graph itself' : 'no file of its own folder';
    throw refuse(`its weights are in ${JSON.stringify(name)}, which is ${own}`);
  }
  return names;
}
