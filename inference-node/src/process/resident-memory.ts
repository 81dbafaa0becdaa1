/** How much memory a process of this machine holds, as the kernel counts it. */
import { readFileSync } from 'node:fs';

/** Bytes; undefined where there is no /proc or the process is gone. */
export function readResidentBytes(pid: number): number | undefined {
  let status: string;
  try {
    // procfs answers from memory: reading it does not block the loop as a file would.
    status = readFileSync(`/proc/${pid}/status`, 'utf8');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ESRCH') return undefined;
    throw error;
  }
  const match = /^VmRSS:\s+(\d+) kB$/m.exec(status);
  return match === null ? undefined : Number(match[1]) * 1024;
}
