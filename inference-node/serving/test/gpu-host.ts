/** A stand-in of nvidia-smi lists GPUs, and their engines run on the CPU. */

import { chmod, mkdtemp, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { CACHE_ENV } from '@matting/test-support/started-env.ts';
import { type Ending, temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import pino from 'pino';
import type { GpuFacts } from '../engine/devices/list-gpus.ts';

const HOOK = path.join(import.meta.dirname, 'faulty-gpu.ts');
const MIB = 1024 * 1024;

export interface GpuHost {
  /** Removed when the test ends. */
  readonly folder: string;
  readonly childEnv: Record<string, string>;
  readonly loads: string;
  fault(...lines: string[]): Promise<void>;
}

export function gpuFacts(letter: string, more: Partial<GpuFacts> = {}): GpuFacts {
  const facts = { id: `GPU-${letter}`, index: 0, name: 'a GPU', driver: '580' };
  return { ...facts, memoryBytes: 80_000 * MIB, ...more };
}

/** For a start that finds everything prepared. */
export const nothingToMake = async (): Promise<never> => {
  throw new Error('it was asked to make a prepared file');
};

function smiRow({ index, id, name, memoryBytes, driver }: GpuFacts): string {
  return `${index}, ${id}, ${name}, ${memoryBytes / MIB}, ${driver}, Disabled`;
}

export async function openGpuHost(context: Ending, gpus: readonly GpuFacts[]): Promise<GpuHost> {
  const root = await temporaryFolder(context);
  const folder = await mkdtemp(path.join(root, 'folder-'));
  const faults = path.join(root, 'faults');
  const loads = path.join(root, 'loads');
  const command = path.join(root, 'nvidia-smi');
  const fault = (...lines: string[]) => writeFile(faults, `${lines.join('\n')}\n`);
  await fault();
  const echoes = gpus.map(gpu => `echo '${smiRow(gpu)}'`).join('\n');
  await writeFile(command, `#!/bin/sh\n${echoes}\n`);
  await chmod(command, 0o755);
  const childEnv = {
    ...CACHE_ENV,
    PATH: `${root}:/bin:/usr/bin`,
    NODE_OPTIONS: `--import=${HOOK}`,
    TEST_GPU_FAULTS: faults,
    TEST_GPU_LOADS: loads,
  };
  return { folder, childEnv, loads, fault };
}

export interface LoggedLine {
  readonly msg: string;
  readonly [field: string]: unknown;
}

export function collectLog(): { readonly log: pino.Logger; readonly lines: LoggedLine[] } {
  const lines: LoggedLine[] = [];
  const log = pino({}, { write: (text: string) => void lines.push(JSON.parse(text)) });
  return { log, lines };
}
