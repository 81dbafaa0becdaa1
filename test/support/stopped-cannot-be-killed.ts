/**
 * Makes SIGKILL miss stopped processes, to imitate uninterruptible sleep (a GPU driver or a hanging
 * file system), which no program can cause.
 */
import { ChildProcess } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';

const STOPPED = 'T';
/** Polls of 1 ms; only a failing test reaches this. */
const POLLS_MAX = 60_000;
const killForReal = process.kill.bind(process);
const killChildForReal = ChildProcess.prototype.kill;

interface Found {
  readonly pid: number;
  readonly state: string;
  readonly group: number;
}

function find(pid: number | string): Found | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    const [state = '', , group] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return { pid: Number(pid), state, group: Number(group) };
  } catch {
    return undefined;
  }
}

/** A negative number means a process group. */
function meant(pid: number): Found[] {
  const all = pid > 0 ? [String(pid)] : readdirSync('/proc').filter(name => /^\d+$/.test(name));
  return all.flatMap(name => {
    const found = find(name);
    return found !== undefined && (pid > 0 || found.group === -pid) ? [found] : [];
  });
}

process.kill = (pid: number, signal?: string | number): true => {
  if (signal !== 'SIGKILL') {
    killForReal(pid, signal);
    if (signal === 'SIGSTOP') untilStopped(pid);
    return true;
  }
  const targets = meant(pid);
  const stopped = targets.filter(({ state }) => state === STOPPED);
  if (stopped.length === 0) return killForReal(pid, signal);
  for (const target of targets) if (!stopped.includes(target)) killForReal(target.pid, signal);
  return true;
};

/** The next signal must find it stopped. */
function untilStopped(pid: number): void {
  for (let polls = 0; find(pid)?.state !== STOPPED; polls += 1) {
    if (polls > POLLS_MAX) throw new Error(`process ${pid} does not stop`);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1);
  }
}

ChildProcess.prototype.kill = function (signal) {
  const stopped = this.pid !== undefined && find(this.pid)?.state === STOPPED;
  return signal === 'SIGKILL' && stopped ? true : killChildForReal.call(this, signal);
};

export function killStopped(pid: number): void {
  try {
    killForReal(pid, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
