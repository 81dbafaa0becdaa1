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

import type { NodeSnapshot } from '@matting/nodes/node-view.ts';
import {
  AS_OTHERS,
  type GroupPlacement,
  isAged,
  orderJobs,
  type Shares,
  type WaitingJob,
} from '@matting/queue/fair-order.ts';
import type { JobFailure } from '@matting/queue/job.ts';
import { needsDownload, type QueueJob } from '@matting/queue/job.ts';
import { KnownLanes } from '@matting/queue/known-lanes.ts';
import type { JobLane, LaneRead } from '@matting/queue/lanes.ts';
import { failureDue } from '@matting/queue/lease-rules.ts';
import type { RunEnd } from '../attempts/claimed-job.ts';
import type { JobInput } from '../jobs/job-request.ts';
import { JobMemories } from './job-memories.ts';
import { type AskedOfNode, admittedMegapixels, type JobNeeds, needsOf } from './job-needs.ts';
import { LargeTurns } from './large-turns.ts';
import { isNamed, NamedLanes, type NamingJob } from './named-lanes.ts';
import { fleetRefusalOf } from './node-refusals.ts';
import { isIncapable, pickNode, settleCropRun } from './pick-node.ts';

/** A round lists more jobs than any fleet of one replica begins in a moment. */
export const LIST_MAX = 256;
/** After one synchronous job, others are expected for this time. */
const SYNC_COMES_MS = 10_000;
/** About a claim and a header: then the node has reported the job. */
const REPORT_PAUSE_MS = 10;

export interface QueuedJob
  extends WaitingJob,
    Omit<AskedOfNode, 'correctable'>,
    Pick<QueueJob, 'id' | 'state' | 'startedAtMs' | 'takeovers' | 'sourceHost'> {
  readonly input: Pick<JobInput, 'format' | 'width' | 'height'> | null;
}

interface Room<Offer, Download> {
  snapshots(): readonly NodeSnapshot[];
  offer(
    node: NodeSnapshot,
    asked: { megapixels: number; waitMsMax: number; model: string | undefined; cropRun: boolean },
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
 * need, one that names a model or wishes for a run on crops for its engines while nodes have room.
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

interface DispatchCoreOptions<Offer, Download> {
  readonly room: Room<Offer, Download>;
  /** A job that no routable node can do waits so long for one that can; undefined: as any job. */
  readonly noNodeGraceMs: number | undefined;
  readonly groups?: GroupPlacement | undefined;
  readonly random: () => number;
  readonly now: () => number;
}

export class DispatchCore<J extends QueuedJob, Offer, Download> {
  readonly memories: JobMemories;
  readonly #options: DispatchCoreOptions<Offer, Download>;
  readonly #groups: GroupPlacement;
  readonly #lanes = new KnownLanes();
  readonly #namedLanes = new NamedLanes();
  readonly #running = new Map<string, J>();
  readonly #turns = new LargeTurns();
  /** What the round under way has not tried yet is untried: it makes no other round begin. */
  readonly #waits = new Map<WaitKind | 'unread', 'known' | 'untried'>([['unread', 'known']]);
  /** When a synchronous request was last seen. */
  #syncAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: DispatchCoreOptions<Offer, Download>) {
    this.#options = options;
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
    const { downloads } = this.#options.room;
    if (needsDownload(job) && this.#awaits('download')) {
      if (!downloads.hasRoom(job)) return NOTHING;
      this.#note('unread');
      return { placed: [], wakeInMs: 0 };
    }
    if (!needsDownload(job) && this.#awaits(waitKindOf(job))) {
      this.#note(waitKindOf(job));
      return { placed: [], wakeInMs: this.#places(job).free > 0 ? 0 : undefined };
    }
    const tried = this.#try(job);
    if (tried.kind === 'unable') return NOTHING;
    if (tried.kind !== 'waits') return { placed: [{ job, placement: tried }], wakeInMs: undefined };
    this.#note(waitKindOf(job));
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
    const unnamed = this.#awaits('node') || (this.#awaits('group') && this.#leavesSyncSlot({}));
    const mayBegin =
      (unnamed && this.#places({}).free > 0) || (this.#awaits('model') && this.#places().free > 0);
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
    const { downloads } = this.#options.room;
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
    const free = jobs.filter(job => !this.#running.has(job.id));
    const ordered = orderJobs(free, this.#shares(), this.#groups);
    const placed: Placed<J, Offer, Download>[] = [];
    const left = new Set(free);
    let wakeInMs = Number.POSITIVE_INFINITY;
    // A lane may have more jobs behind as many as the query took.
    const eachMax = Math.max(1, Math.floor(LIST_MAX / lanes.length));
    const leaves = (kind: WaitKind) => {
      const isOfKind = (job: J) => waitKindOf(job) === kind;
      return jobs.filter(isOfKind).length >= eachMax || [...left].some(isOfKind);
    };
    this.#chooseTurn(ordered);
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

  takeRoom(job: J, needs: JobNeeds): { offer?: Offer | undefined; wakeInMs?: number | undefined } {
    // Synchronous requests that never cease must not outlast the hour in which it must begin.
    if (job.group && !isAged(job, this.#groups) && !this.#leavesSyncSlot(job)) return {};
    const { room, random, now } = this.#options;
    const memory = this.memories.find(job.id);
    const snapshots = room.snapshots();
    const nowMs = now();
    const settled = settleCropRun(snapshots, needs, nowMs, memory);
    const { model, capabilities } = settled.needs;
    const choice = pickNode(this.#turns.openTo(job.id, snapshots), settled.needs, {
      excludedBoots: settled.excludedBoots,
      avoidedNodes: memory?.avoidedNodes,
      random,
      nowMs,
      waitedMs: job.readAtMs - job.createdAtMs,
    });
    if (choice.kind === 'busy') return { wakeInMs: choice.retryInMs };
    if (choice.kind !== 'picked') return {};
    const megapixels = admittedMegapixels(settled.needs);
    const cropRun = capabilities?.includes('crop_run') ?? false;
    const { node, waitMsMax } = choice;
    return { offer: room.offer(node, { megapixels, waitMsMax, model, cropRun }) };
  }

  runEnded(job: J, end: RunEnd): void {
    this.#running.delete(job.id);
    if (end.kind === 'final') this.memories.forget(job.id);
    if (end.kind !== 'open') return;
    if (end.failure !== undefined) this.memories.mustFail(job.id, end.failure);
    if (end.storageFull) this.memories.storageFull(job.id);
    this.#namedLanes.add(job);
    this.#lanes.add(job);
    // Perhaps its image is there by now.
    this.#lanes.add(job, false);
    this.#note('unread');
  }

  #try(job: J): Tried<Offer, Download> {
    const failure = this.#failureDue(job);
    if (failure === 'unable') return { kind: 'unable' };
    if (failure !== undefined) return this.#begin(job, { kind: 'failure', failure });
    if (this.memories.mustWait(job.id)) return WAITS;
    if (needsDownload(job)) {
      const download = this.#options.room.downloads.begin(job);
      return download === undefined ? WAITS : this.#begin(job, { kind: 'download', download });
    }
    if (job.input === null) throw new Error(`job ${job.id} is ready without its image`);
    const { offer, wakeInMs } = this.takeRoom(job, needsOf(job.input, job));
    if (offer === undefined) return { kind: 'waits', wakeInMs };
    return this.#begin(job, { kind: 'node', offer });
  }

  #begin(job: J, placement: Placement<Offer, Download>): Placement<Offer, Download> {
    this.#running.set(job.id, job);
    this.#turns.began(job.id, this.#options.now());
    return placement;
  }

  #chooseTurn(ordered: readonly J[]): void {
    const { room, now } = this.#options;
    const snapshots = room.snapshots();
    const waiting = ordered.flatMap(job => {
      const { id: jobId, input } = job;
      if (needsDownload(job) || input === null) return [];
      const memory = this.memories.find(jobId);
      const settled = settleCropRun(snapshots, needsOf(input, job), now(), memory);
      return [{ jobId, waitedMs: job.readAtMs - job.createdAtMs, ...settled }];
    });
    this.#turns.chooseNext(waiting, snapshots, now());
  }

  #failureDue(job: J): JobFailure | 'unable' | undefined {
    // Lost attempts are not listed: the replica that lost the last one remembers the failure.
    const counted = { ...job, lostAttempts: 0, lostWithProcess: 0 };
    const remembered = this.memories.find(job.id)?.failure;
    return remembered ?? failureDue(counted) ?? this.#incapableFailure(job);
  }

  #incapableFailure(job: J): JobFailure | 'unable' | undefined {
    if (needsDownload(job) || job.input === null) return undefined;
    const { room, now, noNodeGraceMs } = this.#options;
    const needs = needsOf(job.input, job);
    const excludedBoots = this.memories.find(job.id)?.excludedBoots;
    const nodes = room.snapshots();
    const incapable = isIncapable(nodes, needs, excludedBoots);
    if (noNodeGraceMs === undefined) return incapable ? 'unable' : undefined;
    const sinceMs = this.memories.incapableSince(job.id, incapable);
    if (sinceMs === undefined || now() - sinceMs <= noNodeGraceMs) return undefined;
    const { message: why } = fleetRefusalOf(nodes, needs, excludedBoots) ?? {
      message: 'No inference node can process this image.',
    };
    const later = 'Nodes that can may still be starting: send the same request again.';
    return { code: 'PROCESSING_FAILED', detail: `${why} ${later}`, retryable: true };
  }

  /** Counts those that the job may have; without a job, all. */
  #places(job?: NamingJob): { readonly all: number; readonly free: number } {
    const name = job?.model ?? job?.correction?.cropRun?.model;
    let [all, free] = [0, 0];
    for (const node of this.#options.room.snapshots()) {
      if (job && !(name === undefined ? !node.onlyByName : node.models?.has(name))) continue;
      all += Math.max(0, node.imagesFree) + node.imagesInFlight;
      free += Math.max(0, node.imagesFree);
    }
    return { all, free };
  }

  #noteSync(some: readonly Pick<JobLane, 'class'>[]): void {
    if (some.some(one => one.class === 'sync')) this.#syncAtMs = this.#options.now();
  }

  /** Jobs of groups may use the only slot. */
  #leavesSyncSlot(job: NamingJob): boolean {
    if (this.#options.now() - this.#syncAtMs > SYNC_COMES_MS) return true;
    const { all, free } = this.#places(job);
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
}

function waitKindOf(job: QueuedJob): WaitKind {
  if (needsDownload(job)) return 'download';
  if (isNamed(job)) return 'model';
  return job.group ? 'group' : 'node';
}
