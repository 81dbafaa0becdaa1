/**
 * What a replica's dispatcher decides: which lanes of the queue to read, which of the jobs found
 * there begin now and with what, and when to try the others. Pure but for what it remembers between
 * rounds: the dispatcher runs it on the database, bench/dispatch-simulator in simulated time.
 *
 * A round: `beginRound`; `lanesRead` where `lanesOutdated`; `chooseLanes`; the jobs listed; `place`.
 */
import {
  failureDue,
  type Job,
  type JobClass,
  type JobFailure,
  type JobInput,
  needsDownload,
} from '../jobs/job.ts';
import { isIncapable, type NodeSnapshot, pickNode } from './dispatch-policy.ts';
import {
  type AskedOfNode,
  admittedMegapixels,
  JobMemories,
  type JobNeeds,
  needsOf,
} from './job-needs.ts';
import { LargeTurns } from './large-turns.ts';

/** In a round: more than any fleet of one replica begins in a moment. */
export const LIST_MAX = 256;
/** Part of the fleet's room that this replica gives to the playground, one job at least. */
const PLAYGROUND_PLACES_SHARE = 0.25;
/** A claim and a header, about: then the node has reported that it is taken. */
const REPORT_PAUSE_MS = 10;

export interface QueuedJob
  extends WaitingJob,
    AskedOfNode,
    Pick<Job, 'id' | 'state' | 'startedAtMs' | 'takeovers' | 'sourceHost'> {
  readonly input: Pick<JobInput, 'format' | 'width' | 'height'> | null;
}

interface Room<Offer, Download> {
  snapshots(): readonly NodeSnapshot[];
  offer(
    node: NodeSnapshot,
    asked: { megapixels: number; waitMsMax: number; model: string | undefined },
  ): Offer | undefined;
  readonly downloads: {
    hasRoom(job: QueuedJob): boolean;
    hasRoomFor(accountId: string): boolean;
    fullHosts(accountId: string): readonly string[];
    begin(job: QueuedJob): Download | undefined;
  };
}

type Placement<Offer, Download> =
  | { readonly kind: 'node'; readonly offer: Offer }
  | { readonly kind: 'download'; readonly download: Download }
  | { readonly kind: 'failure'; readonly failure: JobFailure };

export interface Placed<J, Offer, Download> {
  readonly job: J;
  readonly placement: Placement<Offer, Download>;
}

export interface Step<J, Offer, Download> {
  /** To be claimed and run, in this order; each ends with `runEnded`. */
  readonly placed: readonly Placed<J, Offer, Download>[];
  /** Until the next round; 0: now; undefined: when something changes. */
  readonly wakeInMs: number | undefined;
}

interface ChosenLanes {
  readonly lanes: readonly LaneRead[];
  /** No lane that something could begin of was left out. */
  readonly all: boolean;
  /** But those whose jobs all name a model. */
  readonly passesNamed?: boolean;
}
/** What became of a run; open: the job is given back, or another holder's now. */
export type RunEnd =
  | { readonly kind: 'final' }
  /** @param failure what its next claim must end it with */
  | { readonly kind: 'open'; readonly failure?: JobFailure | undefined }
  | { readonly kind: 'not-claimed' }
  /** The database failed: its lease runs out. */
  | { readonly kind: 'abandoned' };

const NOTHING = { placed: [], wakeInMs: undefined };

interface DispatchCoreOptions<Offer, Download> {
  readonly room: Room<Offer, Download>;
  /** How long a job that no routable node can do waits for one that can; undefined: as any job. */
  readonly noNodeGraceMs: number | undefined;
  readonly random: () => number;
  readonly now: () => number;
}

export class DispatchCore<J extends QueuedJob, Offer, Download> {
  readonly memories: JobMemories;
  readonly #options: DispatchCoreOptions<Offer, Download>;
  readonly #lanes = new KnownLanes();
  readonly #running = new Map<string, J>();
  readonly #turns = new LargeTurns();
  /** Jobs of this step that wait for another node, not for room: no report lets them begin. */
  readonly #unable = new Set<string>();
  /** Jobs may wait in the table that no round has read. */
  #unread = true;
  /** Jobs that are paid for are known to wait for room on a node. */
  #nodesAwaited = false;
  /** Before the round under way, during which `#nodesAwaited` says what came since. */
  #nodesAwaitedBefore = false;
  #playgroundAwaited = false;
  /** The same of jobs that name a model: they may wait for its engines while there is room. */
  #modelsAwaited = false;
  #downloadsAwaited = false;
  /** Lanes whose waiting jobs all name a model, as they were read last: all of them, or more. */
  readonly #namedLanes = new Map<string, 'whole' | 'more'>();
  /** The next round passes over jobs that name a model: they may hide others that find room. */
  #passesNamed = false;

  constructor(options: DispatchCoreOptions<Offer, Download>) {
    this.#options = options;
    this.memories = new JobMemories(options.now);
  }

  get nodesAwaited(): boolean {
    return this.#nodesAwaited || this.#nodesAwaitedBefore;
  }

  /** Other replicas may have submitted jobs, or died: the next round reads the lanes. */
  outdate(): void {
    this.#lanes.outdate();
    this.#unread = true;
  }

  /** A new job is placed at once where no job waits before it: a round for each costs more. */
  submitted(job: J): Step<J, Offer, Download> {
    this.#addLane(job);
    const { downloads } = this.#options.room;
    if (needsDownload(job) && this.#downloadsAwaited) {
      if (!downloads.hasRoom(job)) return NOTHING;
      this.#unread = true;
      return { placed: [], wakeInMs: 0 };
    }
    if (!needsDownload(job) && this.#waitsBehindOthers(job)) {
      this.#await(job);
      return { placed: [], wakeInMs: this.#nodeHasRoom() ? 0 : undefined };
    }
    this.#unable.clear();
    const step = this.#place(job);
    if (step.placed.length > 0 || this.#unable.has(job.id)) return step;
    this.#await(job);
    return step;
  }

  #addLane(job: J): void {
    this.#lanes.add(job);
    if (!isNamed(job)) this.#namedLanes.delete(laneKey(laneOf(job)));
  }

  #await(job: J): void {
    const kind = waitKindOf(job);
    this.#downloadsAwaited ||= kind === 'download';
    this.#playgroundAwaited ||= kind === 'playground';
    this.#modelsAwaited ||= kind === 'model';
    this.#nodesAwaited ||= kind === 'node';
  }

  #waitsBehindOthers(job: J): boolean {
    if (isUnpaid(job)) return this.nodesAwaited || this.#playgroundAwaited;
    return isNamed(job) ? this.#modelsAwaited : this.#nodesAwaited;
  }

  /**
   * All replicas would claim the same job for a node's report at once: the one whose attempt made
   * the room knows first, and the others leave it a moment.
   * @returns ms until a round; undefined: none is needed
   */
  roomChanged(cause: 'ended' | 'reported'): number | undefined {
    if (cause === 'ended') return 0;
    const awaited = this.#nodesAwaited || this.#playgroundAwaited || this.#modelsAwaited;
    return awaited ? REPORT_PAUSE_MS * (0.5 + this.#options.random()) : undefined;
  }

  downloadEnded(): void {
    this.#unread = true;
  }

  /** False: a round would find nothing that can begin. */
  beginRound(): boolean {
    const playground = this.#playgroundAwaited && this.#hasPlaygroundSlot();
    const awaited = this.#nodesAwaited || this.#modelsAwaited || playground;
    if (!this.#unread && !(awaited && this.#nodeHasRoom())) return false;
    this.#unread = false;
    // Set again by what this round leaves, and by what is submitted while it is under way.
    this.#nodesAwaitedBefore ||= this.#nodesAwaited;
    this.#nodesAwaited = false;
    this.#playgroundAwaited = false;
    this.#modelsAwaited = false;
    this.#downloadsAwaited = false;
    return true;
  }

  get lanesOutdated(): boolean {
    return this.#lanes.outdated;
  }

  lanesRead(lanes: readonly JobLane[]): void {
    this.#lanes.update(lanes);
  }

  chooseLanes(): ChosenLanes {
    const { downloads } = this.#options.room;
    const passesNamed = this.#passesNamed;
    this.#passesNamed = false;
    this.#modelsAwaited ||= passesNamed;
    const namedIn = (lane: LaneIdentity) => passesNamed && this.#namedLanes.get(laneKey(lane));
    const { lanes, all } = this.#lanes.choose(this.#shares(), lane => {
      if (namedIn(lane) === 'whole') return false;
      const isOpen = !lane.needsDownload || downloads.hasRoomFor(lane.accountId);
      if (!isOpen) this.#downloadsAwaited = true;
      return isOpen;
    });
    const reads = lanes.map(lane => {
      if (!lane.needsDownload) return namedIn(lane) ? { ...lane, namesNone: true } : lane;
      const exceptHosts = downloads.fullHosts(lane.accountId);
      if (exceptHosts.length > 0) this.#downloadsAwaited = true;
      return { ...lane, exceptHosts };
    });
    return { lanes: reads, all, ...(passesNamed && { passesNamed }) };
  }

  /** @param jobs LIST_MAX at most, of the chosen lanes: as many of each as there is place for */
  place({ lanes, all, passesNamed }: ChosenLanes, jobs: readonly J[]): Step<J, Offer, Download> {
    const free = jobs.filter(job => !this.#running.has(job.id));
    const ordered = orderJobs(free, this.#shares());
    this.#unable.clear();
    const placed: Placed<J, Offer, Download>[] = [];
    const begun: J[] = [];
    let wakeInMs: number | undefined;
    // Behind as many as were asked for a lane may have more.
    const eachMax = Math.max(1, Math.floor(LIST_MAX / lanes.length));
    const leaves = (kind: WaitKind) => {
      const countOf = (some: readonly J[]) => some.filter(job => waitKindOf(job) === kind).length;
      const able = free.filter(job => !this.#unable.has(job.id));
      return countOf(jobs) >= eachMax || countOf(begun) < countOf(able);
    };
    const tryAll = (some: readonly J[]) => {
      for (const job of some) {
        const step = this.#place(job);
        placed.push(...step.placed);
        begun.push(...step.placed.map(one => one.job));
        wakeInMs = sooner(wakeInMs, step.wakeInMs);
      }
    };
    this.#chooseTurn(ordered);
    tryAll(ordered.filter(job => !isUnpaid(job)));
    // Their lanes are chosen behind all others: where one was read, so were those of the others.
    const othersUnread = !all && !lanes.some(isUnpaid);
    this.#nodesAwaited ||= othersUnread || leaves('node');
    this.#modelsAwaited ||= leaves('model');
    tryAll(ordered.filter(isUnpaid));
    this.#playgroundAwaited ||= !all || leaves('playground');
    const forgotten = this.#lanes.listed(lanes, jobs, begun);
    this.#downloadsAwaited ||= leaves('download');
    this.#nodesAwaitedBefore = this.#nodesAwaited;
    const hidesMore = this.#noteNamed(lanes, jobs, { begun, eachMax });
    this.#passesNamed = !passesNamed && (hidesMore || (!all && this.#modelsAwaited));
    // Nothing waits in the lanes that were read: there is room to read others.
    if (this.#passesNamed || (!all && jobs.length === 0 && forgotten)) {
      this.#unread = true;
      wakeInMs = 0;
    }
    return { placed, wakeInMs };
  }

  /** @returns whether behind jobs that name a model and found no room a lane may have others */
  #noteNamed(
    lanes: readonly LaneRead[],
    jobs: readonly J[],
    { begun, eachMax }: { readonly begun: readonly J[]; readonly eachMax: number },
  ): boolean {
    if (this.#namedLanes.size === 0 && !jobs.some(isNamed)) return false;
    let hidesMore = false;
    for (const { namesNone, ...lane } of lanes) {
      if (namesNone) continue;
      const key = laneKey(lane);
      const listed = jobs.filter(job => isOfLane(job, lane));
      const left = listed.filter(job => !begun.includes(job));
      const isNamedLane = left.length > 0 && left.every(isNamed);
      if (!isNamedLane) this.#namedLanes.delete(key);
      else this.#namedLanes.set(key, listed.length < eachMax ? 'whole' : 'more');
      hidesMore ||= isNamedLane && listed.length >= eachMax;
    }
    return hidesMore;
  }

  takeRoom(job: J, needs: JobNeeds): { offer?: Offer | undefined; wakeInMs?: number | undefined } {
    const { room, random, now } = this.#options;
    const memory = this.memories.find(job.id);
    const choice = pickNode(this.#turns.openTo(job.id, room.snapshots()), needs, {
      excludedBoots: memory?.excludedBoots,
      avoidedNodes: memory?.avoidedNodes,
      random,
      nowMs: now(),
      waitedMs: job.readAtMs - job.createdAtMs,
    });
    if (choice.kind === 'busy') return { wakeInMs: choice.retryInMs };
    if (choice.kind !== 'picked') return {};
    const megapixels = admittedMegapixels(needs);
    const { waitMsMax } = choice;
    return { offer: room.offer(choice.node, { megapixels, waitMsMax, model: needs.model }) };
  }

  runEnded(job: J, end: RunEnd): void {
    this.#running.delete(job.id);
    if (end.kind === 'final') this.memories.forget(job.id);
    if (end.kind !== 'open') return;
    if (end.failure !== undefined) this.memories.mustFail(job.id, end.failure);
    // Perhaps its image is there by now.
    this.#addLane(job);
    this.#lanes.add(job, false);
    this.#unread = true;
  }

  #place(job: J): Step<J, Offer, Download> {
    const failure = this.#failureDue(job);
    if (failure !== undefined) return this.#begin(job, { kind: 'failure', failure });
    if (needsDownload(job)) {
      const download = this.#options.room.downloads.begin(job);
      return download === undefined ? NOTHING : this.#begin(job, { kind: 'download', download });
    }
    if (this.memories.mustWait(job.id)) return NOTHING;
    if (isUnpaid(job) && (this.#nodesAwaited || !this.#hasPlaygroundSlot())) return NOTHING;
    if (job.input === null) throw new Error(`job ${job.id} is ready without its image`);
    const { offer, wakeInMs } = this.takeRoom(job, needsOf(job.input, job));
    return offer === undefined
      ? { placed: [], wakeInMs }
      : this.#begin(job, { kind: 'node', offer });
  }

  #begin(job: J, placement: Placement<Offer, Download>): Step<J, Offer, Download> {
    this.#running.set(job.id, job);
    this.#turns.began(job.id, this.#options.now());
    return { placed: [{ job, placement }], wakeInMs: undefined };
  }

  /**
   * Of jobs that are paid for: nobody waits for the playground's. A job that names a model may wait
   * for its engines, and memory for those is the node's to find.
   */
  #chooseTurn(ordered: readonly J[]): void {
    const { room, now } = this.#options;
    const waiting = ordered.flatMap(job => {
      const { id: jobId, input } = job;
      if (isUnpaid(job) || isNamed(job) || needsDownload(job) || input === null) return [];
      const needs = needsOf(input, job);
      const excludedBoots = this.memories.find(jobId)?.excludedBoots;
      return [{ jobId, waitedMs: job.readAtMs - job.createdAtMs, needs, excludedBoots }];
    });
    this.#turns.chooseNext(waiting, room.snapshots(), now());
  }

  #failureDue(job: J): JobFailure | undefined {
    // Lost attempts are not listed: the replica that lost the last one remembers the failure.
    const counted = { ...job, lostAttempts: 0, lostWithProcess: 0 };
    const remembered = this.memories.find(job.id)?.failure;
    return remembered ?? failureDue(counted) ?? this.#incapableFailure(job);
  }

  #incapableFailure(job: J): JobFailure | undefined {
    if (needsDownload(job) || job.input === null) return undefined;
    const { room, now, noNodeGraceMs } = this.#options;
    const needs = needsOf(job.input, job);
    const excludedBoots = this.memories.find(job.id)?.excludedBoots;
    const incapable = isIncapable(room.snapshots(), needs, excludedBoots);
    if (noNodeGraceMs === undefined) {
      if (incapable) this.#unable.add(job.id);
      return undefined;
    }
    const sinceMs = this.memories.incapableSince(job.id, incapable);
    if (sinceMs === undefined || now() - sinceMs <= noNodeGraceMs) return undefined;
    return {
      code: 'PROCESSING_FAILED',
      detail: `No inference node can process this image${
        needs.finishing || needs.model ? ' with these fields' : ''
      }.`,
      retryable: true,
    };
  }

  #nodeHasRoom(): boolean {
    return this.#options.room.snapshots().some(node => node.imagesFree > 0);
  }

  #hasPlaygroundSlot(): boolean {
    let places = 0;
    for (const { imagesFree, imagesInFlight } of this.#options.room.snapshots()) {
      places += Math.max(0, imagesFree) + imagesInFlight;
    }
    const held = [...this.#running.values()].filter(isUnpaid).length;
    return held < Math.max(1, Math.floor(places * PLAYGROUND_PLACES_SHARE));
  }

  #shares(): Shares {
    const accounts = new Map<string, number>();
    const apiKeys = new Map<string, number>();
    for (const { accountId, apiKeyId } of this.#running.values()) {
      accounts.set(accountId, (accounts.get(accountId) ?? 0) + 1);
      apiKeys.set(apiKeyId, (apiKeys.get(apiKeyId) ?? 0) + 1);
    }
    return { accounts, apiKeys };
  }
}

function isUnpaid(of: Pick<WaitingJob, 'class'>): boolean {
  return of.class === 'playground';
}

function isNamed({ model }: Pick<QueuedJob, 'model'>): boolean {
  return model !== undefined && model !== null;
}

type WaitKind = 'node' | 'download' | 'playground' | 'model';

function waitKindOf(job: QueuedJob): WaitKind {
  if (needsDownload(job)) return 'download';
  if (isUnpaid(job)) return 'playground';
  return isNamed(job) ? 'model' : 'node';
}

function sooner(a: number | undefined, b: number | undefined): number | undefined {
  if (a === undefined || b === undefined) return a ?? b;
  return Math.min(a, b);
}

/*
 * Which job goes next. The queue is read by lanes, a lane being the open jobs of one API key and
 * class that have their image, or those whose image is to be downloaded: the first few of each, so
 * that ten thousand jobs of one lane never hide the first of another.
 */

export const LANES_MAX = 32;

/** So much older an asynchronous job goes before a synchronous one, whose caller waits 120 s. */
export const ASYNC_HEAD_START_MS = 60_000;

/** Smaller first; those of the playground stand behind all others. */
export function queuePositionMs(jobClass: JobClass, createdAtMs: number): number {
  return jobClass === 'sync' ? createdAtMs : createdAtMs + ASYNC_HEAD_START_MS;
}

export interface JobLane {
  readonly needsDownload: boolean;
  readonly class: JobClass;
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly firstQueueAtMs: number;
  readonly readAtMs: number;
}

type LaneIdentity = Pick<JobLane, 'needsDownload' | 'class' | 'accountId' | 'apiKeyId'>;

export interface LaneRead extends LaneIdentity {
  /** Source hosts whose downloads are passed over. */
  readonly exceptHosts?: readonly string[];
  /** Jobs that name a model are passed over. */
  readonly namesNone?: boolean;
}

export function laneKey(lane: LaneIdentity): string {
  const step = lane.needsDownload ? 'download' : 'stored';
  return `${step} ${lane.class} ${lane.accountId} ${lane.apiKeyId}`;
}

type LanedJob = Pick<Job, 'state' | 'class' | 'accountId' | 'apiKeyId'>;

export function laneOf(job: LanedJob): LaneIdentity {
  const { accountId, apiKeyId } = job;
  return { needsDownload: needsDownload(job), class: job.class, accountId, apiKeyId };
}

/**
 * The lanes to read now, LANES_MAX at most: of synchronous and aged jobs first, the playground's
 * last; of them the first of each account before the second of any, an account with running jobs as
 * many turns later. Within an account lanes whose jobs found no room come last, then its key with
 * the fewest running jobs is first, then the lane that has waited longest.
 * @param stuck keys of lanes whose jobs found no room in the last round
 */
export function chooseLanes<L extends JobLane>(
  lanes: readonly L[],
  shares: Shares,
  stuck: ReadonlySet<string>,
): L[] {
  if (lanes.length <= LANES_MAX) return [...lanes];
  const ranked = lanes.map(lane => {
    const isUrgent = lane.class === 'sync' || lane.readAtMs >= lane.firstQueueAtMs;
    const group = lane.class === 'playground' ? 2 : isUrgent ? 0 : 1;
    const stuckLast = stuck.has(laneKey(lane)) ? 1 : 0;
    const ofKey = shares.apiKeys.get(lane.apiKeyId) ?? 0;
    const rank: Rank = [group, stuckLast, ofKey, lane.firstQueueAtMs];
    return { lane, rank };
  });
  ranked.sort((a, b) => compareRanks(a.rank, b.rank));
  const turns = new Map(shares.accounts);
  return ranked
    .map(({ lane, rank: [group, stuckLast, , firstQueueAtMs] }) => {
      const turn = turns.get(lane.accountId) ?? 0;
      turns.set(lane.accountId, turn + 1);
      return { lane, rank: [group, turn, stuckLast, firstQueueAtMs] as const };
    })
    .sort((a, b) => compareRanks(a.rank, b.rank))
    .slice(0, LANES_MAX)
    .map(({ lane }) => lane);
}

type Rank = readonly [number, number, number, number];

function compareRanks(a: Rank, b: Rank): number {
  return a[0] - b[0] || a[1] - b[1] || a[2] - b[2] || a[3] - b[3];
}

export type WaitingJob = Pick<Job, 'class' | 'accountId' | 'apiKeyId' | 'createdAtMs' | 'readAtMs'>;

/** Jobs of each account and key that this replica works on; unknown ones count 0. */
interface Shares {
  readonly accounts: ReadonlyMap<string, number>;
  readonly apiKeys: ReadonlyMap<string, number>;
}

interface KeyQueue<T> {
  readonly jobs: T[];
  running: number;
}

interface AccountQueue<T> {
  readonly keys: Map<string, KeyQueue<T>>;
  running: number;
}

/**
 * Synchronous jobs and those that waited out their head start, then the others, then those of the
 * playground. Within each of the three the account with the fewest running jobs is first, then its
 * key with the fewest, then the job first in the queue. Every job placed counts from then on.
 */
export function orderJobs<T extends WaitingJob>(jobs: readonly T[], shares: Shares): T[] {
  const urgent: T[] = [];
  const patient: T[] = [];
  const unpaid: T[] = [];
  for (const job of jobs) {
    const aged = job.readAtMs - job.createdAtMs >= ASYNC_HEAD_START_MS;
    const paid = job.class === 'sync' || aged ? urgent : patient;
    (job.class === 'playground' ? unpaid : paid).push(job);
  }
  const accounts = new Map(shares.accounts);
  const apiKeys = new Map(shares.apiKeys);
  return [urgent, patient, unpaid].flatMap(group => inFairOrder(group, accounts, apiKeys));
}

function inFairOrder<T extends WaitingJob>(
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
      key = { jobs: [], running: apiKeys.get(job.apiKeyId) ?? 0 };
      account.keys.set(job.apiKeyId, key);
    }
    key.jobs.push(job);
  }
  for (const { keys } of queues.values()) for (const key of keys.values()) key.jobs.reverse();
  const ordered: T[] = [];
  for (;;) {
    const [accountId, account] = least(queues, firstOfAccount) ?? [];
    if (accountId === undefined || account === undefined) return ordered;
    const [apiKeyId, key] = least(account.keys, firstOfKey) ?? [];
    const job = key?.jobs.pop();
    if (apiKeyId === undefined || key === undefined || job === undefined) {
      throw new Error('a queue of an account without a job');
    }
    ordered.push(job);
    key.running += 1;
    account.running += 1;
    accounts.set(accountId, account.running);
    apiKeys.set(apiKeyId, key.running);
    if (key.jobs.length === 0) account.keys.delete(apiKeyId);
    if (account.keys.size === 0) queues.delete(accountId);
  }
}

function least<Q extends { readonly running: number }>(
  queues: ReadonlyMap<string, Q>,
  first: (queue: Q) => number,
): readonly [string, Q] | undefined {
  let best: readonly [string, Q] | undefined;
  for (const entry of queues) {
    best ??= entry;
    if ((entry[1].running - best[1].running || first(entry[1]) - first(best[1])) < 0) best = entry;
  }
  return best;
}

function firstOfKey<T extends WaitingJob>(key: KeyQueue<T>): number {
  const next = key.jobs.at(-1);
  return next === undefined ? Number.POSITIVE_INFINITY : positionOf(next);
}

function firstOfAccount<T extends WaitingJob>(account: AccountQueue<T>): number {
  let first = Number.POSITIVE_INFINITY;
  for (const key of account.keys.values()) first = Math.min(first, firstOfKey(key));
  return first;
}

function positionOf(job: WaitingJob): number {
  return queuePositionMs(job.class, job.createdAtMs);
}

type LaneJob = LanedJob & Pick<Job, 'createdAtMs' | 'readAtMs'>;

/** What this replica knows of the queue's lanes; the next poll finds whatever it forgets. */
export class KnownLanes {
  readonly #lanes = new Map<string, JobLane>();
  #stuck = new Set<string>();
  /** Added during a round, which may have read the table before. */
  readonly #addedSince = new Set<string>();
  #outdated = true;

  get outdated(): boolean {
    return this.#outdated;
  }

  outdate(): void {
    this.#outdated = true;
  }

  /** The lanes of the table; one that is gone is forgotten when it is read next. */
  update(lanes: readonly JobLane[]): void {
    this.#outdated = false;
    for (const lane of lanes) this.#lanes.set(laneKey(lane), lane);
  }

  /** A job of this lane waits, or of the other one of its key and class. */
  add(job: LaneJob, toDownload = needsDownload(job)): void {
    const { createdAtMs, readAtMs } = job;
    const firstQueueAtMs = queuePositionMs(job.class, createdAtMs);
    const lane = { ...laneOf(job), needsDownload: toDownload, firstQueueAtMs, readAtMs };
    const key = laneKey(lane);
    this.#addedSince.add(key);
    if (!this.#lanes.has(key)) this.#lanes.set(key, lane);
  }

  /** The lanes of one round, which then calls `listed`. `all`: none that is open was left out. */
  choose(
    shares: Shares,
    isOpen: (lane: JobLane) => boolean = () => true,
  ): { readonly lanes: readonly JobLane[]; readonly all: boolean } {
    this.#addedSince.clear();
    const open = [...this.#lanes.values()].filter(isOpen);
    const lanes = chooseLanes(open, shares, this.#stuck);
    return { lanes, all: lanes.length === open.length };
  }

  /**
   * What was listed of them: a lane without a waiting job is forgotten, unless some were passed
   * over; one whose jobs all found no room goes behind the others where there are too many.
   * @returns whether one was forgotten
   */
  listed(
    lanes: readonly LaneRead[],
    waiting: readonly LaneJob[],
    placed: readonly LaneJob[],
  ): boolean {
    const withJobs = new Set(waiting.map(laneKeyOf));
    const moved = new Set(placed.map(laneKeyOf));
    const stuck = new Set<string>();
    const before = this.#lanes.size;
    for (const { exceptHosts = [], namesNone = false, ...lane } of lanes) {
      const key = laneKey(lane);
      if (withJobs.has(key) || exceptHosts.length > 0 || namesNone) {
        if (!moved.has(key)) stuck.add(key);
      } else if (!this.#addedSince.has(key)) this.#lanes.delete(key);
    }
    this.#stuck = stuck;
    return this.#lanes.size < before;
  }
}

function isOfLane(job: LanedJob, lane: LaneIdentity): boolean {
  return laneKey(laneOf(job)) === laneKey(lane);
}

function laneKeyOf(job: LaneJob): string {
  return laneKey(laneOf(job));
}
