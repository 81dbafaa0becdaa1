/**
 * Decides which lanes of the queue to read, which of the listed jobs begin now and on which node,
 * and when the next round runs. It does no I/O: the dispatcher runs it on the database,
 * bench/dispatch-simulator in simulated time.
 *
 * A round calls `beginRound`, `lanesRead` if `lanesOutdated`, and `chooseLanes`, lists the jobs of
 * these lanes, and calls `place`.
 *
 * `#waits` has the kinds of jobs that may wait. A round removes all kinds, tries their jobs, and
 * puts back the kinds of jobs that it could not start. So if a job could begin here, its kind is in
 * `#waits`, or a round is running, or the next poll finds the job.
 *
 * | kind        | put in by                                                | a round begins if         |
 * |-------------|----------------------------------------------------------|---------------------------|
 * | unread      | start, poll, a download's end, a run that ends with an   | always                    |
 * |             | open job, a round of empty lanes or of engine-bound jobs |                           |
 * | node, model | a job without room or after others of its kind; a round  | a node has room           |
 * | group       | that leaves such jobs, or may have left them unread      | room is not kept for sync |
 * | download    | a job without a slot for its download                    | never: `unread` covers it |
 *
 * Until the round places jobs, `nodesAwaited` still counts the kinds that it removed. The table
 * leaves out jobs that no routable node can do.
 */

import { EngineBoundLanes } from './engine-bound-lanes.ts';
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
import { LaneCache } from './lane-cache.ts';
import type { JobLane, LaneRead } from './lanes.ts';
import { failureDue } from './lease-rules.ts';

/** More jobs than one replica begins at once. */
export const LIST_MAX = 256;
/** After a synchronous job, others are likely within this time. */
const SYNC_COMES_MS = 10_000;
/** About the time to claim a job and send its header. The node then reports the job. */
const REPORT_PAUSE_MS = 10;

export type QueuedJob = WaitingJob &
  Pick<QueueJob, 'id' | 'state' | 'startedAtMs' | 'takeovers' | 'sourceHost'>;

type Memory = Readonly<JobMemory> | undefined;

/** `open`: the replica gave the job back, or another one claimed it. */
export type RunEnd =
  | { readonly kind: 'final' }
  /** @param failure the next claim must end the job with it */
  | {
      readonly kind: 'open';
      readonly failure?: JobFailure | undefined;
      readonly storageFull?: boolean;
    }
  | { readonly kind: 'not-claimed' }
  /** The database failed, so the lease expires. */
  | { readonly kind: 'abandoned' };

/**
 * What the nodes can take. @typeParam Needs what a job needs of a node; a run may know more than
 * the listed row
 */
export interface Capacity<J, Needs, Offer> {
  /** Whether the job needs particular engines, which may be busy while others are free. */
  isEngineBound(job: J): boolean;
  /** Slots for the job. `unbound`: for any job that is not engine-bound. Absent: all slots. */
  slots(job?: J | 'unbound'): { readonly all: number; readonly free: number };
  /** `wakeInMs`: a slot may become free by then without an event. */
  take(
    job: J,
    memory: Memory,
    needs?: Needs,
  ): { readonly offer?: Offer | undefined; readonly wakeInMs?: number | undefined };
  /** Returns why no routable node can do the job. Undefined: a node can, or there is no node. */
  incapable(job: J, memory: Memory): (() => string) | undefined;
  /** May reserve a node for one of these jobs, which are in order. */
  reserveNode(ordered: readonly J[], memoryOf: (jobId: string) => Memory): void;
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
  /** The replica claims and runs these in order, and calls `runEnded` for each. */
  readonly placed: readonly Placed<J, Offer, Download>[];
  /** Delay of the next round; 0: now; undefined: when something changes. */
  readonly wakeInMs: number | undefined;
}

interface ChosenLanes {
  readonly lanes: readonly LaneRead[];
  /** False: the choice left out lanes with jobs that may begin. */
  readonly all: boolean;
}

/**
 * What a job waits for: a node; its download; room that is not kept for synchronous jobs (group);
 * or its engines, while other nodes have room (model).
 */
const WAIT_KINDS = ['node', 'download', 'group', 'model'] as const;
type WaitKind = (typeof WAIT_KINDS)[number];

type Tried<Offer, Download> =
  | Placement<Offer, Download>
  | { readonly kind: 'waits'; readonly wakeInMs?: number | undefined }
  /** No routable node can do the job, so more room does not help. */
  | { readonly kind: 'unable' };

const NOTHING = { placed: [], wakeInMs: undefined };
const WAITS = { kind: 'waits' } as const;

interface DispatchCoreOptions<J, Needs, Offer, Download> {
  readonly capacity: Capacity<J, Needs, Offer>;
  readonly downloads: DownloadSlots<J, Download>;
  /** How long a job waits for a node that can do it. Undefined: until the job expires. */
  readonly noNodeGraceMs: number | undefined;
  readonly groups?: GroupPlacement | undefined;
  readonly random: () => number;
  readonly now: () => number;
}

export class DispatchCore<J extends QueuedJob, Needs, Offer, Download> {
  readonly memories: JobMemories;
  readonly #options: DispatchCoreOptions<J, Needs, Offer, Download>;
  readonly #groups: GroupPlacement;
  readonly #lanes = new LaneCache();
  readonly #engineBoundLanes: EngineBoundLanes<J>;
  readonly #running = new Map<string, J>();
  /**
   * The kinds of the table above. `untried`: the running round tries them, so they start no other.
   */
  readonly #waits = new Map<WaitKind | 'unread', 'known' | 'untried'>([['unread', 'known']]);
  #syncAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: DispatchCoreOptions<J, Needs, Offer, Download>) {
    this.#options = options;
    this.#engineBoundLanes = new EngineBoundLanes(job => options.capacity.isEngineBound(job));
    this.#groups = options.groups ?? AS_OTHERS;
    this.memories = new JobMemories(options.now);
  }

  get nodesAwaited(): boolean {
    return this.#waits.has('node') || this.#waits.has('group');
  }

  /**
   * Call it when other replicas may have submitted jobs or died. The next round reads the lanes.
   */
  outdate(): void {
    this.#lanes.outdate();
    this.#note('unread');
  }

  /** Places a new job at once if none waits before it: a round for each job costs more. */
  submitted(job: J): Step<J, Offer, Download> {
    this.#noteSync([job]);
    this.#lanes.add(job);
    this.#engineBoundLanes.add(job);
    const { downloads } = this.#options;
    if (needsDownload(job) && this.#awaits('download')) {
      if (!downloads.hasRoom(job)) return NOTHING;
      this.#note('unread');
      return { placed: [], wakeInMs: 0 };
    }
    if (!needsDownload(job) && this.#awaits(this.#waitKindOf(job))) {
      this.#note(this.#waitKindOf(job));
      return { placed: [], wakeInMs: this.#options.capacity.slots(job).free > 0 ? 0 : undefined };
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
   * All replicas would claim the same job after a node's report. The replica that made the room
   * learns of it first, so the others wait a moment.
   * @returns ms until a round; undefined: no round is needed
   */
  roomChanged(cause: 'ended' | 'reported'): number | undefined {
    if (cause === 'ended') return 0;
    const awaited = this.#awaits('node', 'model', 'group');
    return awaited ? REPORT_PAUSE_MS * (0.5 + this.#options.random()) : undefined;
  }

  downloadEnded(): void {
    this.#note('unread');
  }

  /** False: a round would find no job that can begin. */
  beginRound(): boolean {
    const { capacity } = this.#options;
    const unbound =
      this.#awaits('node') || (this.#awaits('group') && this.#leavesSyncSlot('unbound'));
    const mayBegin =
      (unbound && capacity.slots('unbound').free > 0) ||
      (this.#awaits('model') && capacity.slots().free > 0);
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
    if (this.#engineBoundLanes.beginRound()) this.#note('model');
    const { lanes, all } = this.#lanes.choose(this.#shares(), lane => {
      if (this.#engineBoundLanes.skips(lane)) return false;
      const isOpen = !lane.needsDownload || downloads.hasRoomFor(lane.accountId);
      if (!isOpen) this.#note('download');
      return isOpen;
    });
    const reads = lanes.map(lane => {
      if (!lane.needsDownload) return this.#engineBoundLanes.readOf(lane);
      const exceptHosts = downloads.fullHosts(lane.accountId);
      if (exceptHosts.length > 0) this.#note('download');
      return { ...lane, exceptHosts };
    });
    return { lanes: reads, all };
  }

  /** @param jobs of the chosen lanes, LIST_MAX at most, an equal share of each */
  place({ lanes, all }: ChosenLanes, jobs: readonly J[]): Step<J, Offer, Download> {
    const { capacity } = this.#options;
    const free = jobs.filter(job => !this.#running.has(job.id));
    const ordered = orderJobs(free, this.#shares(), this.#groups);
    const placed: Placed<J, Offer, Download>[] = [];
    const unplaced = new Set(free);
    let wakeInMs = Number.POSITIVE_INFINITY;
    // A lane with this many listed jobs may have more.
    const eachMax = Math.max(1, Math.floor(LIST_MAX / lanes.length));
    const leaves = (kind: WaitKind) => {
      const isOfKind = (job: J) => this.#waitKindOf(job) === kind;
      return jobs.filter(isOfKind).length >= eachMax || [...unplaced].some(isOfKind);
    };
    capacity.reserveNode(ordered, id => this.memories.find(id));
    for (const job of ordered) {
      const tried = this.#try(job);
      if (tried.kind === 'waits') wakeInMs = Math.min(wakeInMs, tried.wakeInMs ?? wakeInMs);
      else {
        unplaced.delete(job);
        if (tried.kind !== 'unable') placed.push({ job, placement: tried });
      }
    }
    if (!all) this.#note('node');
    for (const [kind, known] of this.#waits) if (known === 'untried') this.#waits.delete(kind);
    for (const kind of WAIT_KINDS) if (leaves(kind)) this.#note(kind);
    const begun = new Set(placed.map(({ job }) => job));
    const forgotten = this.#lanes.listed(lanes, jobs, [...begun]);
    const lanesLeft = !all && this.#awaits('model');
    const skipsNext = this.#engineBoundLanes.listed(lanes, jobs, { begun, eachMax, lanesLeft });
    // If no job waits in these lanes, the next round reads others.
    if (skipsNext || (!all && jobs.length === 0 && forgotten)) {
      this.#note('unread');
      wakeInMs = 0;
    }
    return { placed, wakeInMs: Number.isFinite(wakeInMs) ? wakeInMs : undefined };
  }

  /** @param needs absent: the needs in the job's row */
  takeRoom(job: J, needs?: Needs): ReturnType<Capacity<J, Needs, Offer>['take']> {
    // Aged jobs take any slot: endless synchronous requests must not hold them past their deadline.
    if (job.group && !isAged(job, this.#groups) && !this.#leavesSyncSlot(job)) return {};
    return this.#options.capacity.take(job, this.memories.find(job.id), needs);
  }

  runEnded(job: J, end: RunEnd): void {
    this.#running.delete(job.id);
    if (end.kind === 'final') this.memories.forget(job.id);
    if (end.kind !== 'open') return;
    if (end.failure !== undefined) this.memories.mustFail(job.id, end.failure);
    if (end.storageFull) this.memories.storageFull(job.id);
    this.#engineBoundLanes.add(job);
    this.#lanes.add(job);
    // The run may have downloaded the input.
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
    // Listings do not read the counts of lost attempts. The replica that lost the last one
    // remembers the failure.
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

  #noteSync(jobs: readonly Pick<JobLane, 'class'>[]): void {
    if (jobs.some(job => job.class === 'sync')) this.#syncAtMs = this.#options.now();
  }

  /** If there is only one slot, group jobs may use it. */
  #leavesSyncSlot(job: J | 'unbound'): boolean {
    if (this.#options.now() - this.#syncAtMs > SYNC_COMES_MS) return true;
    const { all, free } = this.#options.capacity.slots(job);
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
    if (this.#options.capacity.isEngineBound(job)) return 'model';
    return job.group ? 'group' : 'node';
  }
}
