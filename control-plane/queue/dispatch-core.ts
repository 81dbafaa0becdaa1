/**
 * The dispatcher's decision: which lanes of the queue to read, which of the jobs found there begin
 * now and with what, and when to try the others. Pure but for its memory between rounds: the
 * dispatcher runs it on the database, bench/dispatch-simulator in simulated time.
 *
 * A round: `beginRound`; `lanesRead` where `lanesOutdated`; `chooseLanes`; the jobs listed; `place`.
 *
 * `#waits` has what may wait, by what it waits for. A round takes all of it out, tries it, and puts
 * back what it leaves. So if a job could begin here, its kind is there, or a round is under way, or
 * the next poll finds the job.
 *
 * | kind        | what puts it in                                          | a round begins if         |
 * |-------------|----------------------------------------------------------|---------------------------|
 * | unread      | start, poll, the end of a download or of an open run; a  | it is there               |
 * |             | round whose lanes are empty, or full of named jobs       |                           |
 * | node, model | a job without room or behind its kind; a round that      | a node has room           |
 * | group       | leaves such jobs, or leaves unread what may be such jobs | room is not kept for sync |
 * | download    | the same, without a slot for downloads                   | never: a slot is `unread` |
 *
 * What a round took out is untried until it places jobs: until then jobs just downloaded go behind
 * node and group. A job that no routable node can do is in no row.
 */

import {
  AS_OTHERS,
  type GroupPlacement,
  isAged,
  orderJobs,
  type Shares,
  type WaitingJob,
} from './fair-order.ts';
import { type JobFailure, needsDownload, type QueueJob } from './job.ts';
import { JobMemories, type JobMemory } from './job-memories.ts';
import { KnownLanes } from './known-lanes.ts';
import type { JobLane, LaneRead } from './lanes.ts';
import { failureDue } from './lease-rules.ts';
import { NamedLanes } from './named-lanes.ts';

/** A round lists more jobs than any fleet of one replica begins in a moment. */
export const LIST_MAX = 256;
/** After one synchronous job, others are expected for this time. */
const SYNC_COMES_MS = 10_000;
/** About a claim and a header: then the node has reported the job. */
const REPORT_PAUSE_MS = 10;

export type QueuedJob = WaitingJob &
  Pick<QueueJob, 'id' | 'state' | 'startedAtMs' | 'takeovers' | 'sourceHost'>;

type Memory = Readonly<JobMemory> | undefined;

/** If a run ended `open`, the job was given back, or another holder has it now. */
export type RunEnd =
  | { readonly kind: 'final' }
  /** @param failure what its next claim must end it with */
  | {
      readonly kind: 'open';
      readonly failure?: JobFailure | undefined;
      /** Its next attempt waits for room. */
      readonly storageFull?: boolean;
    }
  | { readonly kind: 'not-claimed' }
  /** The database failed: its lease runs out. */
  | { readonly kind: 'abandoned' };

/**
 * The nodes, for jobs whose needs it alone reads.
 * @typeParam Needs of a job; a run may know them better than the row that was listed
 */
export interface Capacity<J, Needs, Offer> {
  /** Whether the job asks for particular engines, which may be busy while others are free. */
  isNamed(job: J): boolean;
  /** Places that the job may have; `unnamed`: that any job may have; absent: all. */
  places(job?: J | 'unnamed'): { readonly all: number; readonly free: number };
  /** Takes a place; `wakeInMs`: time alone may bring one. */
  take(
    job: J,
    memory: Memory,
    needs?: Needs,
  ): { readonly offer?: Offer | undefined; readonly wakeInMs?: number | undefined };
  /** Undefined: a routable node can do it, or none is known. */
  incapable(job: J, memory: Memory): (() => string) | undefined;
  /** Jobs of a round in their order: one may get a node's next place kept for it. */
  chooseTurn(ordered: readonly J[], memoryOf: (jobId: string) => Memory): void;
  began(jobId: string): void;
}

interface DownloadSlots<J, Download> {
  hasRoom(job: J): boolean;
  hasRoomFor(accountId: string): boolean;
  fullHosts(accountId: string): readonly string[];
  begin(job: J): Download | undefined;
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
  /** The replica claims and runs these jobs in this order; each ends with `runEnded`. */
  readonly placed: readonly Placed<J, Offer, Download>[];
  /** The next round begins after this time; 0: now; undefined: when something changes. */
  readonly wakeInMs: number | undefined;
}

interface ChosenLanes {
  readonly lanes: readonly LaneRead[];
  /** No lane that something could begin of was left out. */
  readonly all: boolean;
}

/**
 * A job waits for its download, or for a node: one of a group perhaps for more room than others
 * need, one that asks for particular engines for those while nodes have room.
 */
const WAIT_KINDS = ['node', 'download', 'group', 'model'] as const;
type WaitKind = (typeof WAIT_KINDS)[number];

type Tried<Offer, Download> =
  | Placement<Offer, Download>
  | { readonly kind: 'waits'; readonly wakeInMs?: number | undefined }
  /** No routable node can do it: the job waits for another one, and not for room. */
  | { readonly kind: 'unable' };

const NOTHING = { placed: [], wakeInMs: undefined };
const WAITS = { kind: 'waits' } as const;

interface DispatchCoreOptions<J, Needs, Offer, Download> {
  readonly capacity: Capacity<J, Needs, Offer>;
  readonly downloads: DownloadSlots<J, Download>;
  /** A job that no routable node can do waits so long for one that can; undefined: as any job. */
  readonly noNodeGraceMs: number | undefined;
  readonly groups?: GroupPlacement | undefined;
  readonly random: () => number;
  readonly now: () => number;
}

export class DispatchCore<J extends QueuedJob, Needs, Offer, Download> {
  readonly memories: JobMemories;
  readonly #options: DispatchCoreOptions<J, Needs, Offer, Download>;
  readonly #groups: GroupPlacement;
  readonly #lanes = new KnownLanes();
  readonly #namedLanes: NamedLanes<J>;
  readonly #running = new Map<string, J>();
  /** What the round under way has not tried yet is untried: it makes no other round begin. */
  readonly #waits = new Map<WaitKind | 'unread', 'known' | 'untried'>([['unread', 'known']]);
  /** When a synchronous request was last seen. */
  #syncAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: DispatchCoreOptions<J, Needs, Offer, Download>) {
    this.#options = options;
    this.#namedLanes = new NamedLanes(job => options.capacity.isNamed(job));
    this.#groups = options.groups ?? AS_OTHERS;
    this.memories = new JobMemories(options.now);
  }

  get nodesAwaited(): boolean {
    return this.#waits.has('node') || this.#waits.has('group');
  }

  /** Other replicas may have submitted jobs, or died: the next round reads the lanes. */
  outdate(): void {
    this.#lanes.outdate();
    this.#note('unread');
  }

  /** A new job is placed at once where no job waits before it: a round for each costs more. */
  submitted(job: J): Step<J, Offer, Download> {
    this.#noteSync([job]);
    this.#lanes.add(job);
    this.#namedLanes.add(job);
    const { downloads } = this.#options;
    if (needsDownload(job) && this.#awaits('download')) {
      if (!downloads.hasRoom(job)) return NOTHING;
      this.#note('unread');
      return { placed: [], wakeInMs: 0 };
    }
    if (!needsDownload(job) && this.#awaits(this.#waitKindOf(job))) {
      this.#note(this.#waitKindOf(job));
      return { placed: [], wakeInMs: this.#options.capacity.places(job).free > 0 ? 0 : undefined };
    }
    const tried = this.#try(job);
    if (tried.kind === 'unable') return NOTHING;
    if (tried.kind !== 'waits') return { placed: [{ job, placement: tried }], wakeInMs: undefined };
    this.#note(this.#waitKindOf(job));
    return { placed: [], wakeInMs: tried.wakeInMs };
  }

  #note(kind: WaitKind | 'unread'): void {
    this.#waits.set(kind, 'known');
  }

  #awaits(...kinds: readonly (WaitKind | 'unread')[]): boolean {
    return kinds.some(kind => this.#waits.get(kind) === 'known');
  }

  /**
   * All replicas would claim the same job for a node's report at once: the one whose attempt made
   * the room knows first, and the others leave it a moment.
   * @returns ms until a round; undefined: none is needed
   */
  roomChanged(cause: 'ended' | 'reported'): number | undefined {
    if (cause === 'ended') return 0;
    const awaited = this.#awaits('node', 'model', 'group');
    return awaited ? REPORT_PAUSE_MS * (0.5 + this.#options.random()) : undefined;
  }

  downloadEnded(): void {
    this.#note('unread');
  }

  /** False: a round would find nothing that can begin. */
  beginRound(): boolean {
    const { capacity } = this.#options;
    const unnamed =
      this.#awaits('node') || (this.#awaits('group') && this.#leavesSyncSlot('unnamed'));
    const mayBegin =
      (unnamed && capacity.places('unnamed').free > 0) ||
      (this.#awaits('model') && capacity.places().free > 0);
    if (!this.#awaits('unread') && !mayBegin) return false;
    for (const kind of this.#waits.keys()) this.#waits.set(kind, 'untried');
    return true;
  }

  get lanesOutdated(): boolean {
    return this.#lanes.outdated;
  }

  lanesRead(lanes: readonly JobLane[]): void {
    this.#noteSync(lanes);
    this.#lanes.update(lanes);
  }

  chooseLanes(): ChosenLanes {
    const { downloads } = this.#options;
    if (this.#namedLanes.beginRound()) this.#note('model');
    const { lanes, all } = this.#lanes.choose(this.#shares(), lane => {
      if (this.#namedLanes.passesOver(lane)) return false;
      const isOpen = !lane.needsDownload || downloads.hasRoomFor(lane.accountId);
      if (!isOpen) this.#note('download');
      return isOpen;
    });
    const reads = lanes.map(lane => {
      if (!lane.needsDownload) return this.#namedLanes.readOf(lane);
      const exceptHosts = downloads.fullHosts(lane.accountId);
      if (exceptHosts.length > 0) this.#note('download');
      return { ...lane, exceptHosts };
    });
    return { lanes: reads, all };
  }

  /** @param jobs LIST_MAX at most, of the chosen lanes: as many of each as there is place for */
  place({ lanes, all }: ChosenLanes, jobs: readonly J[]): Step<J, Offer, Download> {
    const { capacity } = this.#options;
    const free = jobs.filter(job => !this.#running.has(job.id));
    const ordered = orderJobs(free, this.#shares(), this.#groups);
    const placed: Placed<J, Offer, Download>[] = [];
    const left = new Set(free);
    let wakeInMs = Number.POSITIVE_INFINITY;
    // A lane may have more jobs behind as many as the query took.
    const eachMax = Math.max(1, Math.floor(LIST_MAX / lanes.length));
    const leaves = (kind: WaitKind) => {
      const isOfKind = (job: J) => this.#waitKindOf(job) === kind;
      return jobs.filter(isOfKind).length >= eachMax || [...left].some(isOfKind);
    };
    capacity.chooseTurn(ordered, id => this.memories.find(id));
    for (const job of ordered) {
      const tried = this.#try(job);
      if (tried.kind === 'waits') wakeInMs = Math.min(wakeInMs, tried.wakeInMs ?? wakeInMs);
      else {
        left.delete(job);
        if (tried.kind !== 'unable') placed.push({ job, placement: tried });
      }
    }
    if (!all) this.#note('node');
    for (const [kind, known] of this.#waits) if (known === 'untried') this.#waits.delete(kind);
    for (const kind of WAIT_KINDS) if (leaves(kind)) this.#note(kind);
    const begun = new Set(placed.map(({ job }) => job));
    const forgotten = this.#lanes.listed(lanes, jobs, [...begun]);
    const lanesLeft = !all && this.#awaits('model');
    const passes = this.#namedLanes.listed(lanes, jobs, { begun, eachMax, lanesLeft });
    // Nothing waits in the lanes that were read: there is room to read others.
    if (passes || (!all && jobs.length === 0 && forgotten)) {
      this.#note('unread');
      wakeInMs = 0;
    }
    return { placed, wakeInMs: Number.isFinite(wakeInMs) ? wakeInMs : undefined };
  }

  /** @param needs absent: those of the row */
  takeRoom(job: J, needs?: Needs): ReturnType<Capacity<J, Needs, Offer>['take']> {
    // Synchronous requests that never cease must not outlast the hour in which it must begin.
    if (job.group && !isAged(job, this.#groups) && !this.#leavesSyncSlot(job)) return {};
    return this.#options.capacity.take(job, this.memories.find(job.id), needs);
  }

  runEnded(job: J, end: RunEnd): void {
    this.#running.delete(job.id);
    if (end.kind === 'final') this.memories.forget(job.id);
    if (end.kind !== 'open') return;
    if (end.failure !== undefined) this.memories.mustFail(job.id, end.failure);
    if (end.storageFull) this.memories.storageFull(job.id);
    this.#namedLanes.add(job);
    this.#lanes.add(job);
    // Perhaps it is downloaded by now.
    this.#lanes.add(job, false);
    this.#note('unread');
  }

  #try(job: J): Tried<Offer, Download> {
    const failure = this.#failureDue(job);
    if (failure === 'unable') return { kind: 'unable' };
    if (failure !== undefined) return this.#begin(job, { kind: 'failure', failure });
    if (this.memories.mustWait(job.id)) return WAITS;
    if (needsDownload(job)) {
      const download = this.#options.downloads.begin(job);
      return download === undefined ? WAITS : this.#begin(job, { kind: 'download', download });
    }
    const { offer, wakeInMs } = this.takeRoom(job);
    if (offer === undefined) return { kind: 'waits', wakeInMs };
    return this.#begin(job, { kind: 'node', offer });
  }

  #begin(job: J, placement: Placement<Offer, Download>): Placement<Offer, Download> {
    this.#running.set(job.id, job);
    this.#options.capacity.began(job.id);
    return placement;
  }

  #failureDue(job: J): JobFailure | 'unable' | undefined {
    // Lost attempts are not listed: the replica that lost the last one remembers the failure.
    const counted = { ...job, lostAttempts: 0, lostWithProcess: 0 };
    const remembered = this.memories.find(job.id)?.failure;
    return remembered ?? failureDue(counted) ?? this.#incapableFailure(job);
  }

  #incapableFailure(job: J): JobFailure | 'unable' | undefined {
    if (needsDownload(job)) return undefined;
    const { capacity, now, noNodeGraceMs } = this.#options;
    const why = capacity.incapable(job, this.memories.find(job.id));
    if (noNodeGraceMs === undefined) return why && 'unable';
    const sinceMs = this.memories.incapableSince(job.id, why !== undefined);
    if (why === undefined || sinceMs === undefined || now() - sinceMs <= noNodeGraceMs) {
      return undefined;
    }
    const later = 'Nodes that can may still be starting: send the same request again.';
    return { code: 'PROCESSING_FAILED', detail: `${why()} ${later}`, retryable: true };
  }

  #noteSync(some: readonly Pick<JobLane, 'class'>[]): void {
    if (some.some(one => one.class === 'sync')) this.#syncAtMs = this.#options.now();
  }

  /** Jobs of groups may use the only slot. */
  #leavesSyncSlot(job: J | 'unnamed'): boolean {
    if (this.#options.now() - this.#syncAtMs > SYNC_COMES_MS) return true;
    const { all, free } = this.#options.capacity.places(job);
    return free > Math.ceil((all - 1) * this.#groups.syncSlotsShare);
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

  #waitKindOf(job: J): WaitKind {
    if (needsDownload(job)) return 'download';
    if (this.#options.capacity.isNamed(job)) return 'model';
    return job.group ? 'group' : 'node';
  }
}
