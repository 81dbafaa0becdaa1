/**
 * Finds CUDA's and cuDNN's libraries as the dynamic linker will: in LD_LIBRARY_PATH, the recorded
 * folders, the system's. Nothing is loaded: a small graph shows whether it runs.
 */

import { execFile } from 'node:child_process';
import { accessSync, constants, globSync, statSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { listDirectory } from '@matting/serving/models/cache-files.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';

/** Libraries of NVIDIA; all others come with the system's C and C++ libraries. */
const OF_NVIDIA = /^lib(cu|nv)/;
/** The driver's own. Another in its place, of CUDA's compatibility package say, may not fit it. */
const OF_DRIVER = /^lib(cuda|nvidia-[a-z]+)\.so/;
/** Opened at the first convolution, so no library names it; every first run needs it. */
const CUDNN = 'libcudnn.so.9';
const CUDNN_GRAPH = 'libcudnn_graph.so.9';
const PROVIDER = 'libonnxruntime_providers_cuda.so';
/** The known packages' files name these libraries, besides cuDNN. */
const LINKED_WITH = [
  'libcublasLt.so.13',
  'libcublas.so.13',
  'libcurand.so.10',
  'libcudart.so.13',
  'libcuda.so.1',
  CUDNN,
];
/** Parts of cuDNN 9.19: without one the process dies with a line that names none. */
const OPENED_BY: readonly (readonly [name: string, neededBy: string])[] = [
  [CUDNN_GRAPH, CUDNN],
  ['libcudnn_ops.so.9', CUDNN],
  ['libcudnn_heuristic.so.9', CUDNN_GRAPH],
  ['libcudnn_engines_precompiled.so.9', CUDNN_GRAPH],
  ['libcudnn_engines_runtime_compiled.so.9', CUDNN_GRAPH],
  ['libnvrtc.so.13', CUDNN_GRAPH],
];
const LD_SO_CONF = '/etc/ld.so.conf';
const INCLUDES_MAX = 64;
const USUAL_FOLDERS = [
  '/lib64',
  '/usr/lib64',
  '/lib/x86_64-linux-gnu',
  '/usr/lib/x86_64-linux-gnu',
  '/lib',
  '/usr/lib',
];
const INSTALLERS_FOLDERS = ['/usr/local/cuda*/lib64', '/usr/local/nvidia/lib64', '/opt/cuda/lib64'];
const GIVEN_DEPTH_MAX = 5;
const GIVEN_ENTRIES_MAX = 20_000;

export interface FoundLibrary {
  readonly name: string;
  readonly path: string | undefined;
  readonly neededBy: string;
  /** Whether only a run shows if it is needed: another release of cuDNN has other parts. */
  readonly opened: boolean;
}

interface SearchFolders {
  /** LD_LIBRARY_PATH of engines as the operator set it. */
  readonly ldLibraryPath: string | undefined;
  /** The folders are the record's, or candidates while installing. */
  readonly further: readonly string[];
}

/** Lists the NVIDIA libraries that the provider needs, missing ones included. */
export async function findLibraries({
  ldLibraryPath,
  further,
}: SearchFolders): Promise<readonly FoundLibrary[]> {
  const system = await systemFolders();
  const folders = [...splitPath(ldLibraryPath), ...further, ...system];
  const foldersOfDriver = [...splitPath(ldLibraryPath), ...system, ...further];
  const linked = LINKED_WITH.map(name => {
    const place = findIn(OF_DRIVER.test(name) ? foldersOfDriver : folders, name);
    return { name, path: place, neededBy: PROVIDER, opened: false };
  });
  const cudnn = linked.find(({ name }) => name === CUDNN)?.path;
  if (cudnn === undefined) return linked;
  // cuDNN's parts lie beside it, at a path that it builds itself.
  const beside = [...folders, path.dirname(cudnn)];
  const opened = OPENED_BY.map(([name, neededBy]) => {
    return { name, path: findIn(beside, name), neededBy, opened: true };
  });
  return [...linked, ...opened];
}

/** Folders that the system does not search by itself, and without a driver's library. */
export async function foldersToRecord(
  found: readonly FoundLibrary[],
  ldLibraryPath: string | undefined,
): Promise<string[]> {
  const known = new Set([...splitPath(ldLibraryPath), ...(await linkerFolders())]);
  const ofDriver = await systemFolders();
  const folders = found.flatMap(({ name, path: file }) => {
    const folder = file === undefined ? [] : [path.dirname(file)];
    return OF_DRIVER.test(name) ? folder.filter(one => ofDriver.includes(one)) : folder;
  });
  return [...new Set(folders)].filter(folder => !known.has(folder));
}

/** Lists the folders with NVIDIA's libraries. @throws ModelError `disk`: `given` is unreadable. */
export async function foldersBelow(given: string): Promise<string[]> {
  const folders: string[] = [];
  let entries = 0;
  const visit = async (folder: string, depth: number): Promise<void> => {
    if (depth > 0 && !mayRead(folder)) return;
    const names = await listDirectory(folder);
    entries += names.length;
    if (entries > GIVEN_ENTRIES_MAX) return;
    if (names.some(name => OF_NVIDIA.test(name) && name.includes('.so'))) folders.push(folder);
    if (depth === GIVEN_DEPTH_MAX) return;
    for (const name of names) {
      const below = path.join(folder, name);
      if (isFolder(below)) await visit(below, depth + 1);
    }
  };
  await visit(path.resolve(given), 0);
  return folders;
}

function findIn(folders: readonly string[], name: string): string | undefined {
  return folders
    .map(folder => path.join(folder, name))
    .find(file => statIfSeen(file)?.isFile() && mayRead(file));
}

function isFolder(file: string): boolean {
  return statIfSeen(file)?.isDirectory() ?? false;
}

function statIfSeen(file: string) {
  try {
    return statSync(file, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

function mayRead(file: string): boolean {
  try {
    accessSync(file, constants.R_OK);
    return true;
  } catch {
    return false;
  }
}

function splitPath(text: string | undefined): string[] {
  return (text ?? '').split(':').filter(folder => folder !== '');
}

async function systemFolders(): Promise<string[]> {
  return [...(await linkerFolders()), ...INSTALLERS_FOLDERS.flatMap(pattern => globSync(pattern))];
}

async function linkerFolders(): Promise<string[]> {
  const folders: string[] = [];
  const files = [LD_SO_CONF];
  for (let read = 0; files.length > 0 && read < INCLUDES_MAX; read++) {
    const file = files.shift() as string;
    for (const line of (await readIfThere(file)).split('\n')) {
      const text = line.replace(/#.*/, '').trim();
      const included = /^include\s+(\S+)$/.exec(text)?.[1];
      if (included !== undefined)
        files.push(...globSync(path.resolve(path.dirname(file), included)));
      else if (text.startsWith('/')) folders.push(text);
    }
  }
  return [...folders, ...USUAL_FOLDERS];
}

async function readIfThere(file: string): Promise<string> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    // The linker passes over what it cannot read, a folder or a link to itself too.
    if (typeof (error as NodeJS.ErrnoException).code === 'string') return '';
    throw error;
  }
}

const run = promisify(execFile);
const ANSWER_MAX_MS = 20_000;
const PYTHON = ['python3', 'python'];
const ASK =
  'import site, sys; print("\\n".join([*site.getsitepackages(), site.getusersitepackages()]))';

/** Empty without Python, or without such packages. */
export async function pythonLibraryFolders(
  env: Readonly<Record<string, string | undefined>>,
): Promise<readonly string[]> {
  const found: string[] = [];
  for (const python of PYTHON) {
    let said: string;
    try {
      said = (await run(python, ['-c', ASK], { env: { ...env }, timeout: ANSWER_MAX_MS })).stdout;
    } catch {
      // No Python, or one that does not answer: it brought nothing that could be used.
      continue;
    }
    for (const folder of said.split('\n').filter(Boolean)) {
      try {
        found.push(...(await foldersBelow(path.join(folder, 'nvidia'))));
      } catch (error) {
        // Folder that this user may not read. Engines run as such a user, so they may not either.
        if (!(error instanceof ModelError && error.kind === 'disk')) throw error;
      }
    }
  }
  return [...new Set(found)];
}
