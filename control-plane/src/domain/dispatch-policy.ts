/**
 * Which job goes next, and to which node. Pure: snapshots in, a choice out; chance is handed in.
 * The dispatcher runs it, and so does anything that simulates a fleet.
 *
 * Nodes are compared by estimated wait (Mitzenmacher, "The Power of Two Choices in Randomized Load
 * Balancing", 2001): all of them in a small fleet, two at random in a large one, so that replicas
 * with stale views do not all pick the same best node.
 */
import type { InputFormat, OutputFormat } from '#contract/formats.ts';
import { IMAGE_PIXELS_MAX } from '#contract/limits.ts';
import { ASYNC_HEAD_START_MS, queuePositionMs } from './lease.ts';

/** Up to here a look at every node costs less than it gains. */
export const FULL_SCAN_NODES_MAX = 15;

/** What one replica knows of one node now, its own attempts included. */
export interface NodeSnapshot {
  readonly nodeId: string;
  /** A UUID of that start of the node's process. */
  readonly bootId: string;
  readonly inputFormats: ReadonlySet<InputFormat>;
  readonly outputFormats: ReadonlySet<OutputFormat>;
  readonly imagePixelsMax: number;
  /** Of a JPEG XL input or output; 0: none. */
  readonly jxlPixelsMax: number;
  /** Further images it would admit: its own report less what we have started since. */
  readonly imagesFree: number;
  readonly megapixelsFree: number;
  /** Nothing is admitted there and nothing of ours is on its way. */
  readonly idle: boolean;
  readonly engines: number;
  readonly enginesReady: number;
  /** By its own report: until an engine takes an image admitted now. */
  readonly estimatedWaitMs: number;
  /** Running mean of a run. */
  readonly inferMs: number;
  /** Images we have started that its report does not show yet. */
  readonly unreportedImages: number;
}

export interface JobNeeds {
  readonly inputFormat: InputFormat;
  /** As stored in the file; null where the header does not show it. */
  readonly pixels: number | null;
  readonly outputFormat: OutputFormat;
}

export type NodeChoice =
  | { readonly kind: 'picked'; readonly node: NodeSnapshot }
  /** A node that can do it has no room now. */
  | { readonly kind: 'busy' }
  /** Nodes are routable and none of them can ever do it. */
  | { readonly kind: 'incapable' }
  | { readonly kind: 'no-nodes' };

export interface NodeChoiceOptions {
  /** Boot ids of nodes that said they cannot do this job. */
  readonly excludedBoots?: ReadonlySet<string>;
  /** Node ids taken only where no other capable node is routable: an attempt failed there. */
  readonly avoidedNodes?: ReadonlySet<string>;
  /** In [0, 1). */
  readonly random: () => number;
}

/** Megapixels an image is admitted at: an unknown size counts as the largest. */
export function megapixelsOf(pixels: number | null): number {
  return (pixels ?? IMAGE_PIXELS_MAX) / 1e6;
}

/** Whether the node can do the job at all, however long it waits. */
export function canDo(node: NodeSnapshot, needs: JobNeeds): boolean {
  if (!node.inputFormats.has(needs.inputFormat)) return false;
  if (!node.outputFormats.has(needs.outputFormat)) return false;
  const jxl = needs.inputFormat === 'jxl' || needs.outputFormat === 'jxl';
  // A size the header does not show is given a chance: the node knows it once it has the bytes.
  if (jxl && node.jxlPixelsMax <= 0) return false;
  if (needs.pixels === null) return true;
  if (jxl && needs.pixels > node.jxlPixelsMax) return false;
  return needs.pixels <= node.imagePixelsMax;
}

/** Whether the node would admit the job now. */
export function hasRoom(node: NodeSnapshot, needs: JobNeeds): boolean {
  // No engine ready: they are restarting, and the job is better kept where it can still go
  // elsewhere.
  if (node.enginesReady < 1 || node.imagesFree < 1) return false;
  // What an idle node refuses it can never hold, and its refusal says so.
  return node.idle || megapixelsOf(needs.pixels) <= node.megapixelsFree;
}

/** Milliseconds until an engine would take one more image, our unreported ones before it. */
export function expectedWaitMs(node: NodeSnapshot): number {
  const engines = Math.max(1, node.enginesReady);
  return node.estimatedWaitMs + (node.unreportedImages * node.inferMs) / engines;
}

/** @param nodes the routable ones. */
export function pickNode(
  nodes: readonly NodeSnapshot[],
  needs: JobNeeds,
  options: NodeChoiceOptions,
): NodeChoice {
  if (nodes.length === 0) return { kind: 'no-nodes' };
  const { excludedBoots, avoidedNodes, random } = options;
  const capable = nodes.filter(node => !excludedBoots?.has(node.bootId) && canDo(node, needs));
  if (capable.length === 0) return { kind: 'incapable' };
  const others = capable.filter(node => !avoidedNodes?.has(node.nodeId));
  const preferred = others.length > 0 ? others : capable;
  const free = preferred.filter(node => hasRoom(node, needs));
  if (free.length === 0) return { kind: 'busy' };
  return { kind: 'picked', node: leastLoaded(sample(free, random), random) };
}

function sample(nodes: readonly NodeSnapshot[], random: () => number): readonly NodeSnapshot[] {
  if (nodes.length <= FULL_SCAN_NODES_MAX) return nodes;
  const first = Math.floor(random() * nodes.length);
  // Another one: an offset of 1 to length - 1.
  const offset = 1 + Math.floor(random() * (nodes.length - 1));
  return [nodes[first], nodes[(first + offset) % nodes.length]];
}

function leastLoaded(nodes: readonly NodeSnapshot[], random: () => number): NodeSnapshot {
  let best: NodeSnapshot[] = [];
  let bestOrder: readonly [number, number] = [Number.POSITIVE_INFINITY, 0];
  for (const node of nodes) {
    const order = [expectedWaitMs(node), node.unreportedImages - node.imagesFree] as const;
    const difference = order[0] - bestOrder[0] || order[1] - bestOrder[1];
    if (best.length > 0 && difference > 0) continue;
    best = best.length > 0 && difference === 0 ? [...best, node] : [node];
    bestOrder = order;
  }
  return best[Math.floor(random() * best.length)];
}

/** A job that waits, as far as its turn depends on it. */
export interface WaitingJob {
  readonly mode: 'sync' | 'async';
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly createdAtMs: number;
  /** The clock createdAtMs was taken from. */
  readonly readAtMs: number;
}

/** How many jobs of each account and key this replica works on; unknown ones count 0. */
export interface Shares {
  readonly accounts: ReadonlyMap<string, number>;
  readonly apiKeys: ReadonlyMap<string, number>;
}

interface KeyQueue<T> {
  readonly jobs: T[];
  next: number;
  running: number;
}

interface AccountQueue<T> {
  readonly keys: Map<string, KeyQueue<T>>;
  running: number;
}

/**
 * The order in which jobs get their turn: synchronous ones before the others, and before them only
 * what has waited out its head start; within each of the two the account with the fewest running
 * jobs first, then its key with the fewest, then the job first in the queue. Every job placed
 * counts for its account and key from then on, so that two accounts alternate however many jobs
 * each has waiting.
 */
export function orderJobs<T extends WaitingJob>(jobs: readonly T[], shares: Shares): T[] {
  const urgent: T[] = [];
  const patient: T[] = [];
  for (const job of jobs) {
    const aged = job.readAtMs - job.createdAtMs >= ASYNC_HEAD_START_MS;
    (job.mode === 'sync' || aged ? urgent : patient).push(job);
  }
  const accounts = new Map(shares.accounts);
  const apiKeys = new Map(shares.apiKeys);
  return [...inFairTurns(urgent, accounts, apiKeys), ...inFairTurns(patient, accounts, apiKeys)];
}

/** Counts what it places into the two maps. */
function inFairTurns<T extends WaitingJob>(
  jobs: readonly T[],
  accounts: Map<string, number>,
  apiKeys: Map<string, number>,
): T[] {
  const queues = new Map<string, AccountQueue<T>>();
  for (const job of jobs.toSorted((a, b) => positionOf(a) - positionOf(b))) {
    let account = queues.get(job.accountId);
    if (account === undefined) {
      account = { keys: new Map(), running: accounts.get(job.accountId) ?? 0 };
      queues.set(job.accountId, account);
    }
    let key = account.keys.get(job.apiKeyId);
    if (key === undefined) {
      key = { jobs: [], next: 0, running: apiKeys.get(job.apiKeyId) ?? 0 };
      account.keys.set(job.apiKeyId, key);
    }
    key.jobs.push(job);
  }
  const ordered: T[] = [];
  while (queues.size > 0) {
    const [accountId, account] = least(queues, firstOfAccount);
    const [apiKeyId, key] = least(account.keys, firstOfKey);
    ordered.push(key.jobs[key.next]);
    key.next += 1;
    key.running += 1;
    account.running += 1;
    accounts.set(accountId, account.running);
    apiKeys.set(apiKeyId, key.running);
    if (key.next === key.jobs.length) account.keys.delete(apiKeyId);
    if (account.keys.size === 0) queues.delete(accountId);
  }
  return ordered;
}

function least<Q extends { readonly running: number }>(
  queues: ReadonlyMap<string, Q>,
  first: (queue: Q) => number,
): readonly [string, Q] {
  let best: readonly [string, Q] | undefined;
  for (const entry of queues) {
    const difference =
      best === undefined
        ? -1
        : entry[1].running - best[1].running || first(entry[1]) - first(best[1]);
    if (difference < 0) best = entry;
  }
  return best!;
}

function firstOfKey<T extends WaitingJob>(key: KeyQueue<T>): number {
  return positionOf(key.jobs[key.next]);
}

function firstOfAccount<T extends WaitingJob>(account: AccountQueue<T>): number {
  let first = Number.POSITIVE_INFINITY;
  for (const key of account.keys.values()) first = Math.min(first, firstOfKey(key));
  return first;
}

function positionOf(job: WaitingJob): number {
  return queuePositionMs(job.mode, job.createdAtMs);
}
