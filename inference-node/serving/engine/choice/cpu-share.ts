/**
 * How many CPUs this process may use: the least of what the scheduler lets it run on and the quotas
 * of its control groups, from its own up to the root. ONNX Runtime left alone sees the host's
 * cores.
 */
import { readFile } from 'node:fs/promises';
import { availableParallelism } from 'node:os';
import path from 'node:path';

/**
 * CPUs, fractions allowed: a quota of 150 ms in 100 ms is 1.5. Of the root of the mounted control
 * groups, and the file that says in which of them this process is.
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
      // Mounted under either name, by the distribution.
      for (const mount of ['cpu', 'cpu,cpuacct']) {
        for (const folder of upwards(path.join(cgroupRoot, mount), group)) {
          quotas.push(await readQuotaV1(folder));
        }
      }
    }
  }
  return Math.min(parallelism, ...quotas);
}

/** The group's folder and all above it; in a container only the last, the mount, may exist. */
function upwards(mount: string, group: string): string[] {
  const names = group.split('/').filter(name => name !== '' && name !== '..');
  return names.map((_, i) => path.join(mount, ...names.slice(0, names.length - i))).concat(mount);
}

/** "150000 100000" or "max 100000". */
function parseCpuMax(text: string | undefined): number {
  const [quota = 0, period = 0] = (text ?? '').trim().split(/\s+/).map(Number);
  return quota > 0 && period > 0 ? quota / period : Number.POSITIVE_INFINITY;
}

/** A quota of -1 is none. */
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
