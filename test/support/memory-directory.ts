/** Commits to a real disk would take most of a run's time. */
import { mkdtempSync, readdirSync, readFileSync, rmSync, statfsSync } from 'node:fs';
import path from 'node:path';

const MEMORY = '/dev/shm';
/** A run uses less than a tenth of it at any time. */
const ROOM_BYTES_MIN = 6 * 2 ** 30;

/** Removed when this process ends. Undefined: no such file system, or too little room. */
export function openMemoryDirectory(): string | undefined {
  if (!isMounted() || roomBytes() < ROOM_BYTES_MIN) return undefined;
  for (const name of readdirSync(MEMORY)) {
    const [, pid] = /^matting-tests-(\d+)-/.exec(name) ?? [];
    if (pid !== undefined && !isAlive(Number(pid))) remove(path.join(MEMORY, name));
  }
  const directory = mkdtempSync(path.join(MEMORY, `matting-tests-${process.pid}-`));
  process.once('exit', () => remove(directory));
  return directory;
}

function isMounted(): boolean {
  const mounts = readLines('/proc/mounts').map(line => line.split(' '));
  const [, , kind, options = ''] = mounts.find(([, place]) => place === MEMORY) ?? [];
  return kind === 'tmpfs' && !options.split(',').includes('noexec');
}

/** The smaller of the file system's and the machine's. */
function roomBytes(): number {
  const { bavail, bsize } = statfsSync(MEMORY);
  const [, kib = '0'] =
    readLines('/proc/meminfo')
      .map(line => /^MemAvailable: +(\d+) kB$/.exec(line))
      .find(found => found !== null) ?? [];
  return Math.min(bavail * bsize, 1024 * Number(kib));
}

function readLines(file: string): string[] {
  try {
    return readFileSync(file, 'utf8').split('\n');
  } catch {
    return []; // no Linux
  }
}

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function remove(directory: string): void {
  rmSync(directory, { recursive: true, force: true, maxRetries: 5 });
}
