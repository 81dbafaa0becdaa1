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
 * Whether a member of the group runs, stopped and uninterruptible ones included. Dead ones that
 * nobody has waited for do not count: in a container without an init process they stay for ever.
 */
export function isGroupAlive(group: number): boolean {
  try {
    process.kill(-group, 0);
  } catch (error) {
    // EPERM: it is there, and has become another user's.
    return (error as NodeJS.ErrnoException).code !== 'ESRCH';
  }
  return membersOf(group)?.some(state => state !== 'Z' && state !== 'X') ?? true;
}

/** The state letter of each member, of proc(5); undefined where there is no /proc. */
function membersOf(group: number): string[] | undefined {
  let names: string[];
  try {
    names = readdirSync('/proc');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
  return names.flatMap(name => {
    if (!/^\d+$/.test(name)) return [];
    const [state, , processGroup] = readStat(name);
    return Number(processGroup) === group ? [state] : [];
  });
}

/** The fields from the third on: the second is a name in parentheses that may hold blanks. */
function readStat(pid: string): string[] {
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
