/** Processes of this machine as /proc counts them: whose children they are, what they took. */
import { existsSync, readdirSync, readFileSync } from 'node:fs';

/** The clock of /proc, 100 a second on every Linux. */
const MS_PER_TICK = 10;

/** A program of the service: found by its file and the port that it was given. */
export interface Program {
  readonly main: string;
  readonly variable: string;
}

export interface Memory {
  readonly rss: number;
  readonly pss: number;
  readonly processes: number;
}

export const PROCESS_ROLES = ['control plane', 'node', 'picture workers', 'engines'] as const;
export type ProcessRole = (typeof PROCESS_ROLES)[number];

/** A process has taken so much until now. */
export interface ProcessTimes {
  readonly role: ProcessRole;
  /** All its threads took so much, ms. */
  readonly cpuMs: number;
  /** The first thread took so much, which runs the event loop, ms. */
  readonly mainCpuMs: number;
}

export type TimesByPid = ReadonlyMap<number, ProcessTimes>;

export const CHILD_PROGRAMS = {
  engines: 'engine/child/engine-child.ts',
  'picture workers': 'picture/worker/picture-worker.ts',
} as const satisfies Partial<Record<ProcessRole, string>>;

function processes(): number[] {
  return readdirSync('/proc')
    .filter(name => /^\d+$/.test(name))
    .map(Number);
}

/** Children, their children and so on. */
export function descendants(parent: number): number[] {
  const parents = processes().map(pid => [pid, Number(statFields(pid)?.[1])] as const);
  const below = (above: number): number[] =>
    parents.flatMap(([pid, of]) => (of === above ? [pid, ...below(pid)] : []));
  return below(parent);
}

export function pidOf({ main, variable }: Program, port: number): number {
  const found = processes().find(
    pid =>
      readProc(pid, 'cmdline')?.includes(main) &&
      readProc(pid, 'environ')?.includes(`\0${variable}=${port}\0`),
  );
  if (found === undefined) throw new Error(`${main} was not found`);
  return found;
}

/** Processor time of all its threads, not of its children. */
export function cpuMsOf(pid: number): number {
  const ms = ticksOf(statFields(pid));
  if (ms === undefined) throw new Error(`process ${pid} is gone`);
  return ms;
}

/** Reads the times of the two programs and of all the node's children that are alive. */
export function timesOf(controlPlane: number, node: number): TimesByPid {
  const roles: [number, ProcessRole][] = [
    [controlPlane, 'control plane'],
    [node, 'node'],
    ...descendants(node).map((pid): [number, ProcessRole] => [pid, roleOfChild(pid) ?? 'node']),
  ];
  const times = new Map<number, ProcessTimes>();
  for (const [pid, role] of roles) {
    const cpuMs = ticksOf(statFields(pid));
    if (cpuMs === undefined) continue;
    const mainCpuMs = ticksOf(statFields(pid, `task/${pid}/stat`)) ?? cpuMs;
    times.set(pid, { role, cpuMs, mainCpuMs });
  }
  return times;
}

/** Sums a process and all its children, bytes: by the kernel's own sums, which take it a while. */
export function memoryOf(root: number): Memory {
  const pids = [root, ...descendants(root)];
  let rss = 0;
  let pss = 0;
  for (const pid of pids) {
    if (!existsSync(`/proc/${pid}/smaps_rollup`)) continue;
    const text = readProc(pid, 'smaps_rollup') ?? '';
    rss += 1024 * Number(/^Rss:\s+(\d+)/m.exec(text)?.[1] ?? 0);
    pss += 1024 * Number(/^Pss:\s+(\d+)/m.exec(text)?.[1] ?? 0);
  }
  return { rss, pss, processes: pids.length };
}

function roleOfChild(pid: number): keyof typeof CHILD_PROGRAMS | undefined {
  const command = readProc(pid, 'cmdline') ?? '';
  const roles = Object.keys(CHILD_PROGRAMS) as (keyof typeof CHILD_PROGRAMS)[];
  return roles.find(role => command.includes(CHILD_PROGRAMS[role]));
}

/** Gives the fields of `stat` after the name, which may hold blanks; undefined: it is gone. */
function statFields(pid: number, file = 'stat'): string[] | undefined {
  const stat = readProc(pid, file);
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ');
}

/** Fields 14 and 15 of `stat`. */
function ticksOf(fields: readonly string[] | undefined): number | undefined {
  if (fields === undefined) return undefined;
  return MS_PER_TICK * (Number(fields[11]) + Number(fields[12]));
}

/** Undefined: gone since it was listed, or another user's. */
function readProc(pid: number, file: string): string | undefined {
  try {
    return readFileSync(`/proc/${pid}/${file}`, 'utf8');
  } catch {
    return undefined;
  }
}
