/** Reads facts about processes that the tests did not start themselves. */
import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 20;
/** A minute, which only a test that fails waits. Looks, since a machine may stand still meanwhile. */
const LOOKS_MAX = 60_000 / POLL_MS;

export async function until(what: string, condition: () => boolean): Promise<void> {
  for (let looks = 0; !condition(); looks += 1) {
    if (looks > LOOKS_MAX) throw new Error(`it never came: ${what}`);
    await delay(POLL_MS);
  }
}

/** A dead process whose parent has not yet waited for it is not alive. */
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

/** Stops it: from then on it can neither answer nor end by itself, whatever it was about to do. */
export async function stop(pid: number): Promise<void> {
  process.kill(pid, 'SIGSTOP');
  await until(`process ${pid} has stopped`, () => {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat[stat.lastIndexOf(')') + 2] === 'T';
  });
}

/** Processor time of a process, in the kernel's ticks (10 ms). */
function readCpuTicks(pid: number): number {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // The second field is a name in parentheses; user and system time are the 14th and 15th.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  return Number(fields[11]) + Number(fields[12]);
}

const BUSY_TICKS = 6;

/** Resolves when the process has worked for a while: an idle engine works not at all. */
export async function untilBusy(pid: number): Promise<void> {
  const before = readCpuTicks(pid);
  await until(`process ${pid} works`, () => readCpuTicks(pid) - before >= BUSY_TICKS);
}
