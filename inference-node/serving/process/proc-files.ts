import { readFileSync } from 'node:fs';

/** Undefined without /proc, or if the process is gone. */
function readProcFile(pid: number, name: 'stat' | 'status'): string | undefined {
  try {
    // procfs answers from memory, so this does not block the loop.
    return readFileSync(`/proc/${pid}/${name}`, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return undefined;
    throw error;
  }
}

/** Fields from the third on. The second is a name in parentheses that may hold blanks. */
export function readStat(pid: number): string[] {
  const stat = readProcFile(pid, 'stat');
  return stat === undefined ? [] : stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** Processor time of all its threads, in ticks of 10 ms. */
export function readProcessorTicks(pid: number): number {
  const [user, system] = readStat(pid).slice(11, 13).map(Number);
  return (user ?? 0) + (system ?? 0);
}

export function readResidentBytes(pid: number): number | undefined {
  return readMemory(pid, 'VmRSS');
}

export function readPeakBytes(pid: number): number | undefined {
  return readMemory(pid, 'VmHWM');
}

function readMemory(pid: number, field: 'VmRSS' | 'VmHWM'): number | undefined {
  const status = readProcFile(pid, 'status') ?? '';
  const match = new RegExp(`^${field}:\\s+(\\d+) kB$`, 'm').exec(status);
  return match === null ? undefined : Number(match[1]) * 1024;
}
