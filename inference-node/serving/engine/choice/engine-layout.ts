import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';
import {
  type ExecutionProvider,
  largestInput,
  type PlanModel,
  type PreparedModel,
} from '../../models/prepared-model.ts';

/*
 * ISNet at 1024x1024 on 2 cores of an AMD EPYC (bench/MEASUREMENTS.md): in fp32 one engine of two
 * threads beats two engines of one in latency and throughput. In int8 it answers in 0.56 of the
 * time, but two engines give 1.17 times the images a second, for twice the memory.
 */

export interface EngineLayout {
  readonly engines: number;
  readonly threadsPerEngine: number;
}

export interface LayoutInputs {
  readonly provider: ExecutionProvider;
  readonly cpuShare: number;
  /** Most engines that fit next to the pictures, in main memory and in that of the GPU. */
  readonly enginesMax: number;
}

/**
 * A second engine gives 1.05 to 1.27 times the images a second with 16 cores, but 0.88 to 0.95 with
 * 8, because its thread occupies a core while it waits for the GPU (bench/MEASUREMENTS.md).
 */
const CORES_A_GPU_ENGINE = 8;
const GPU_ENGINES_MAX = 2;
/** More threads no longer speed up one picture's convolutions; further engines do better. */
export const THREADS_PER_ENGINE_MAX = 16;

/**
 * GPU: engines of one thread, since more threads only spin. CPU: one engine with all threads, which
 * holds the weights once and answers a single picture soonest; several on large machines.
 */
export function chooseEngineLayout(inputs: LayoutInputs): EngineLayout {
  const { provider, cpuShare, enginesMax } = inputs;
  const within = (wanted: number) => Math.max(1, Math.min(Math.floor(wanted), enginesMax));
  if (provider !== 'cpu') {
    const engines = within(Math.min(GPU_ENGINES_MAX, cpuShare / CORES_A_GPU_ENGINE));
    return { engines, threadsPerEngine: 1 };
  }
  // A thread above the quota is throttled, and the others wait for it.
  const threads = Math.max(1, Math.floor(cpuShare));
  const engines = within(Math.ceil(threads / THREADS_PER_ENGINE_MAX));
  const share = Math.floor(threads / engines);
  return { engines, threadsPerEngine: Math.min(THREADS_PER_ENGINE_MAX, share) };
}

/**
 * On a CPU an opinion or second look by a smaller model gets half the first model's engines: it
 * runs only if the matte is unsure, so more engines would wait for cores, not for pictures.
 */
export function enginesOf(
  { model, role }: PlanModel,
  [first]: readonly PlanModel[],
  engines: number,
): number {
  const isSmaller = first !== undefined && pixelsOf(model) < pixelsOf(first.model);
  const runsLess = (role === 'opinion' || role === 'secondLook') && isSmaller;
  return model.provider === 'cpu' && runsLess ? Math.ceil(engines / 2) : engines;
}

function pixelsOf(model: PreparedModel): number {
  const { width, height } = largestInput(model);
  return width * height;
}

/**
 * CPUs by the strictest limit of scheduler and control groups. A quota of 150 ms in 100 ms is 1.5.
 * ONNX Runtime itself would count the host's cores.
 */
export async function readCpuShare({
  cgroupRoot = '/sys/fs/cgroup',
  procCgroup = '/proc/self/cgroup',
  parallelism = availableParallelism(),
} = {}): Promise<number> {
  const membership = (await readIfThere(procCgroup)) ?? '';
  const quotas: number[] = [];
  for (const line of membership.split('\n')) {
    // hierarchy:controllers:path; version 2 is hierarchy 0 without controllers.
    const [hierarchy, controllers, ...rest] = line.split(':');
    const group = rest.join(':');
    if (hierarchy === '0' && controllers === '') {
      for (const folder of upwards(cgroupRoot, group)) {
        quotas.push(parseCpuMax(await readIfThere(path.join(folder, 'cpu.max'))));
      }
    } else if (controllers?.split(',').includes('cpu')) {
      for (const mount of ['cpu', 'cpu,cpuacct']) {
        for (const folder of upwards(path.join(cgroupRoot, mount), group)) {
          quotas.push(await readQuotaV1(folder));
        }
      }
    }
  }
  return Math.min(parallelism, ...quotas);
}

/** The folders from the group's up to the mount. Often a container has only the mount. */
function upwards(mount: string, group: string): string[] {
  const names = group.split('/').filter(name => name !== '' && name !== '..');
  return names.map((_, i) => path.join(mount, ...names.slice(0, names.length - i))).concat(mount);
}

/** "150000 100000" or "max 100000". */
function parseCpuMax(text: string | undefined): number {
  const [quota = 0, period = 0] = (text ?? '').trim().split(/\s+/).map(Number);
  return quota > 0 && period > 0 ? quota / period : Number.POSITIVE_INFINITY;
}

async function readQuotaV1(folder: string): Promise<number> {
  const quota = Number(await readIfThere(path.join(folder, 'cpu.cfs_quota_us')));
  const period = Number(await readIfThere(path.join(folder, 'cpu.cfs_period_us')));
  return quota > 0 && period > 0 ? quota / period : Number.POSITIVE_INFINITY;
}

async function readIfThere(file: string): Promise<string | undefined> {
  try {
    return await readFile(file, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EACCES') return undefined;
    throw error;
  }
}
