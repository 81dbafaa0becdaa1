/** A child and what it started, as one: the process group that it leads. */
import { readdirSync, readFileSync } from 'node:fs';

/** Sends SIGKILL to every member. A group without members is what was wanted. */
export function killGroup(group: number): void {
  try {
    process.kill(-group, 'SIGKILL');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}

/**
 * The pid of a member that runs, stopped and uninterruptible ones included; undefined: none does.
 * Zombies do not count: in a container without an init process they
 * stay for ever.
 * @param known the one that was found before: while it runs the others are not searched, which
 *   takes 30 us for each process of the machine.
 */
export function findMember(group: number, known: number | undefined): number | undefined {
  try {
    process.kill(-group, 0);
  } catch (error) {
    // EPERM: it is there, and has become another user's.
    return (error as NodeJS.ErrnoException).code === 'ESRCH' ? undefined : group;
  }
  if (known !== undefined && isMember(known, group)) return known;
  const pids = listPids();
  // Without /proc no more is known.
  return pids === undefined ? group : pids.find(pid => isMember(pid, group));
}

/** Undefined where there is no /proc. */
function listPids(): number[] | undefined {
  try {
    return readdirSync('/proc').filter(isDecimal).map(Number);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

function isDecimal(name: string): boolean {
  return /^\d+$/.test(name);
}

function isMember(pid: number, group: number): boolean {
  const [state, , processGroup] = readStat(pid);
  return Number(processGroup) === group && state !== 'Z' && state !== 'X';
}

/** The fields from the third on: the second is a name in parentheses that may hold blanks. */
function readStat(pid: number): string[] {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    // It has ended since the listing.
    if (code === 'ENOENT' || code === 'ESRCH') return [];
    throw error;
  }
}
