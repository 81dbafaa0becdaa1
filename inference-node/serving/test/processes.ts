import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 20;
/** A minute. Counts looks, since a machine may stand still. */
const LOOKS_MAX = 60_000 / POLL_MS;

export async function until(what: string, condition: () => boolean): Promise<void> {
  for (let looks = 0; !condition(); looks += 1) {
    if (looks > LOOKS_MAX) throw new Error(`it never came: ${what}`);
    await delay(POLL_MS);
  }
}

/** A zombie is not alive. */
export function isAlive(pid: number): boolean {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat[stat.lastIndexOf(')') + 2] !== 'Z';
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return false;
    throw error;
  }
}

/** From then on it can neither answer nor end. */
export async function stop(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  await until(`process ${pid} has stopped`, () => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat[stat.lastIndexOf(')') + 2] === 'T';
  });
}

/** In ticks of 10 ms. */
function readCpuTicks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The second field is a name in parentheses; utime and stime are the 14th and 15th.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

const BUSY_TICKS = 6;

/** Idle engines take no processor time. */
export async function untilBusy(pid: number): Promise<void> {
  const before = readCpuTicks(pid);
  await until(`process ${pid} works`, () => readCpuTicks(pid) - before >= BUSY_TICKS);
}
