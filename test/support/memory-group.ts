/** A Linux control group that bounds the memory of processes. */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';

const ROOT = '/sys/fs/cgroup';
/** cgroup v1 has one folder for each controller; libuv reads the membership too. */
const OWN_MEMORY_GROUP = /^\d+:memory:(.*)$/m;

/** v1: next to this process's group; v2: at the top. */
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

  /** Prefix: the command and all its children are in the group. */
  get within(): readonly string[] {
    const file = path.join(this.#folder, 'cgroup.procs');
    return ['sh', '-c', `echo $$ > '${file}' && exec "$0" "$@"`];
  }

  /** Includes the page cache. */
  get peakBytes(): number {
    return Number(readFileSync(path.join(this.#folder, this.#peak), 'utf8'));
  }

  remove(): void {
    if (existsSync(this.#folder)) rmdirSync(this.#folder);
  }
}
