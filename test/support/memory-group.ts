/** A control group of Linux that bounds the memory of processes. */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = '/sys/fs/cgroup';
/** Groups of version 1 have one folder for each kind; libuv reads the membership too. */
const OWN_MEMORY_GROUP = /^\d+:memory:(.*)$/m;

/** Finds where a group can be made: version 1 beside this process's own, 2 at the top. */
function place() {
  const membership = readFileSync('/proc/self/cgroup', 'utf8');
  const own = OWN_MEMORY_GROUP.exec(membership)?.[1];
  return own === undefined
    ? { parent: ROOT, limit: 'memory.max', peak: 'memory.peak' }
    : {
        parent: path.join(ROOT, 'memory', own),
        limit: 'memory.limit_in_bytes',
        peak: 'memory.max_usage_in_bytes',
      };
}

export function skipWithoutMemoryGroups(): string | false {
  try {
    new MemoryGroup('probe', 2 ** 30).remove();
    return false;
  } catch (error) {
    return `no group with a bound of memory can be made: ${(error as Error).message}`;
  }
}

export class MemoryGroup {
  readonly #folder: string;
  readonly #peak: string;

  constructor(name: string, bytes: number) {
    const { parent, limit, peak } = place();
    this.#folder = path.join(parent, `matting-test-${process.pid}-${name}`);
    this.#peak = peak;
    mkdirSync(this.#folder);
    if (!existsSync(path.join(this.#folder, limit))) {
      this.remove();
      throw new Error(`${parent} has no ${limit}`);
    }
    writeFileSync(path.join(this.#folder, limit), String(bytes));
  }

  /** A command behind this is in the group, and so is all that it starts. */
  get within(): readonly string[] {
    const file = path.join(this.#folder, 'cgroup.procs');
    return ['sh', '-c', `echo $$ > '${file}' && exec "$0" "$@"`];
  }

  /** The most that the group had at once, with what it read of files. */
  get peakBytes(): number {
    return Number(readFileSync(path.join(this.#folder, this.#peak), 'utf8'));
  }

  /** The group must have no processes. */
  remove(): void {
    if (existsSync(this.#folder)) rmdirSync(this.#folder);
  }
}
