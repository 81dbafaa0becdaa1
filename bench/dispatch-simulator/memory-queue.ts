/**
 * The queue in memory, as simulations use it in place of the table: test/simulation/ runs the
 * tests of every queue on it. It has no money and no notifications.
 */

import type { JobResult } from '@matting/core/jobs/job-outcome.ts';
import { isFinal, type JobFailure, type JobLease, type JobState } from '@matting/queue/job.ts';
import {
  type JobLane,
  type LaneRead,
  laneKey,
  laneOf,
  queuePositionMs,
} from '@matting/queue/lanes.ts';
import type { Claim } from '@matting/queue/lease-rules.ts';
import type { AccountQueue, LeaseEnded, QueuedWork } from '@matting/queue/queue.ts';
import { isEngineBound } from '../../control-plane/core/dispatch/node-capacity.ts';
import type { JobInput } from '../../control-plane/core/jobs/job-request.ts';
import { sourceHostOf } from '../../control-plane/core/jobs/job-rows.ts';
import type {
  ClaimableJob,
  Claimed,
  InputStoredOptions,
  JobSuccess,
  OpenJob,
  WorkerQueue,
} from '../../control-plane/core/queue/queue.ts';
import { queuedMegapixels } from '../../control-plane/core/queue/queue-bound.ts';

type Needed = 'id' | 'accountId' | 'apiKeyId' | 'class' | 'createdAtMs' | 'input' | 'outputFormat';
export type AddedJob = Pick<OpenJob, Needed> & Partial<Omit<OpenJob, 'state' | 'lease' | 'fence'>>;

interface Row {
  job: OpenJob;
  readonly queueAtMs: number;
  ended?: { readonly result: JobResult } | { readonly failure: JobFailure };
}

interface Lane {
  readonly open: Row[];
  readonly free: Row[];
}

const NONE = {
  ...{ startedAtMs: null, finishedAtMs: null, expiresAtMs: null, deletedAtMs: null },
  ...{ sourceHost: null, capWindowStartMs: null, unpaidDayMs: null, group: null },
  ...{ idempotencyKeyHash: null, fingerprint: '', traceContext: null, reference: null },
  ...{ sourceUrl: null, model: null, noSubject: null, channels: 'rgba' as const, finishing: null },
  ...{ background: null, hints: null, hintsFile: null, callback: null },
  ...{ correctable: null, correction: null, kept: null, corrections: 0 },
  ...{ lease: null, fence: 0, lostAttempts: 0, lostWithProcess: 0, takeovers: 0 },
} as const;

export class MemoryQueue implements WorkerQueue {
  readonly #now: () => number;
  readonly #rows = new Map<string, Row>();
  readonly #lanes = new Map<string, Lane>();
  readonly #expiring = new Set<Row>();

  constructor(now: () => number) {
    this.#now = now;
  }

  add(added: AddedJob): OpenJob {
    const { input, sourceUrl, background, createdAtMs } = added;
    const url = input === null ? sourceUrl : background?.input === null ? background.url : null;
    const sourceHost = url ? sourceHostOf(url) : null;
    const state = sourceHost === null ? 'ready' : 'accepted';
    const job: OpenJob = { ...NONE, readAtMs: this.#now(), ...added, state, sourceHost };
    const row: Row = { job, queueAtMs: queuePositionMs(job.class, createdAtMs) };
    this.#rows.set(job.id, row);
    insert(this.#laneOf(job).open, row);
    insert(this.#laneOf(job).free, row);
    return job;
  }

  find(jobId: string): OpenJob | undefined {
    const row = this.#rows.get(jobId);
    return row && this.#read(row);
  }

  async listLanes(): Promise<JobLane[]> {
    return [...this.#lanes.values()].flatMap(({ open: [first] }) => {
      if (first === undefined) return [];
      return [{ ...laneOf(first.job), firstQueueAtMs: first.queueAtMs, readAtMs: this.#now() }];
    });
  }

  async listClaimable(limit: number, among?: readonly LaneRead[]): Promise<ClaimableJob[]> {
    this.#endExpired();
    const lanes: readonly LaneRead[] = among ?? (await this.listLanes());
    const eachMax = Math.max(1, Math.floor(limit / lanes.length));
    const rows = lanes.flatMap(lane => {
      const { free = [] } = this.#lanes.get(laneKey(lane)) ?? {};
      const { exceptHosts = [], unboundOnly } = lane;
      if (exceptHosts.length === 0 && !unboundOnly) return free.slice(0, eachMax);
      return free
        .filter(({ job }) => !(unboundOnly && isEngineBound(job)))
        .filter(({ job }) => !exceptHosts.includes(job.sourceHost ?? ''))
        .slice(0, eachMax);
    });
    return rows
      .sort(compare)
      .slice(0, limit)
      .map(({ job }) => listed(job, this.#now()));
  }

  async claim(
    { id, fence }: Pick<ClaimableJob, 'id' | 'fence'>,
    holder: string,
    leaseMs: number,
  ): Promise<Claimed | undefined> {
    const row = this.#rows.get(id);
    if (row === undefined || isFinal(row.job) || row.job.fence !== fence) return undefined;
    const { lease, state, takeovers } = row.job;
    if (lease !== null && lease.expiresAtMs > this.#now()) return undefined;
    this.#change(row, {
      state: state === 'accepted' ? 'fetching' : state,
      takeovers: takeovers + (lease === null ? 0 : 1),
      fence: fence + 1,
      lease: { holder, expiresAtMs: this.#now() + leaseMs },
    });
    return { claim: { jobId: id, holder, fence: fence + 1 }, job: this.#read(row) };
  }

  async renew(claim: Claim, leaseMs: number): Promise<boolean> {
    const row = this.#heldBy(claim);
    const { holder } = claim;
    if (row) this.#change(row, { lease: { holder, expiresAtMs: this.#now() + leaseMs } });
    return row !== undefined;
  }

  async release(claim: Claim): Promise<boolean> {
    const row = this.#heldBy(claim);
    if (row) this.#change(row, { lease: null });
    return row !== undefined;
  }

  async endLease(jobId: string): Promise<LeaseEnded> {
    const row = this.#rows.get(jobId);
    if (row === undefined) return { kind: 'unknown' };
    const { state, lease } = row.job;
    if (isFinal(row.job)) return { kind: 'final', state };
    if (lease === null) return { kind: 'not-leased' };
    this.#change(row, { lease: null });
    return { kind: 'ended', holder: lease.holder };
  }

  async inputStored(
    claim: Claim,
    input: JobInput,
    { backgroundUrl }: InputStoredOptions = {},
  ): Promise<boolean> {
    const row = this.#heldBy(claim);
    if (row === undefined) return false;
    if (row.job.state !== 'fetching') return row.job.input?.blob === input.blob;
    const next =
      backgroundUrl === undefined
        ? { state: 'ready' as const }
        : { sourceUrl: backgroundUrl, sourceHost: sourceHostOf(backgroundUrl) };
    this.#change(row, { ...next, input });
    return true;
  }

  async backgroundStored(claim: Claim, input: JobInput): Promise<boolean> {
    const row = this.#heldBy(claim);
    if (row === undefined) return false;
    const { state, background } = row.job;
    if (state !== 'fetching') return background?.input?.blob === input.blob;
    this.#change(row, { state: 'ready', background: { url: background?.url ?? null, input } });
    return true;
  }

  async admitted(claim: Claim): Promise<boolean> {
    const row = this.#heldBy(claim);
    if (row === undefined || !['ready', 'running'].includes(row.job.state)) return false;
    this.#change(row, { state: 'running', startedAtMs: row.job.startedAtMs ?? this.#now() });
    return true;
  }

  async attemptLost(claim: Claim, withProcess: boolean): Promise<OpenJob | undefined> {
    const row = this.#heldBy(claim);
    if (row === undefined) return undefined;
    const { lostAttempts, lostWithProcess } = row.job;
    this.#change(row, {
      lostAttempts: lostAttempts + 1,
      lostWithProcess: lostWithProcess + (withProcess ? 1 : 0),
      lease: null,
    });
    return this.#read(row);
  }

  async succeed(
    claim: Claim,
    { result, resultTtlMs }: Pick<JobSuccess, 'result' | 'resultTtlMs'>,
  ): Promise<boolean> {
    const { ended, job } = this.#rows.get(claim.jobId) ?? {};
    if (ended !== undefined) {
      return job?.fence === claim.fence && 'result' in ended && ended.result.token === result.token;
    }
    return job?.state === 'running' && this.#end(claim, { result }, this.#now() + resultTtlMs);
  }

  async fail(claim: Claim, failure: JobFailure): Promise<boolean> {
    const { ended, job } = this.#rows.get(claim.jobId) ?? {};
    if (ended !== undefined) {
      return (
        job?.fence === claim.fence && 'failure' in ended && ended.failure.code === failure.code
      );
    }
    return this.#end(claim, { failure }, null);
  }

  async queued(): Promise<QueuedWork> {
    const byAccount = new Map<string, AccountQueue>();
    const byModel = new Map<string | null, number>();
    const total = { jobs: 0, cost: 0, oldestAgeMs: 0 };
    for (const { open } of this.#lanes.values()) {
      for (const { job } of open) {
        if (job.state === 'running' && job.lease !== null) continue;
        const cost = queuedMegapixels(job);
        total.jobs += 1;
        total.cost += cost;
        total.oldestAgeMs = Math.max(total.oldestAgeMs, this.#now() - job.createdAtMs);
        byModel.set(job.model, (byModel.get(job.model) ?? 0) + cost);
        const other = byAccount.get(job.accountId) ?? { jobs: 0, cost: 0, unfetched: 0 };
        byAccount.set(job.accountId, {
          jobs: other.jobs + 1,
          cost: other.cost + cost,
          unfetched: other.unfetched + (job.input === null ? 1 : 0),
        });
      }
    }
    return { ...total, byAccount, byModel };
  }

  async doneWithin(windowMs: number) {
    const done = { jobs: 0, cost: 0 };
    for (const { job, ended } of this.#rows.values()) {
      if (ended === undefined || !('result' in ended)) continue;
      if ((job.finishedAtMs ?? 0) <= this.#now() - windowMs) continue;
      done.jobs += 1;
      done.cost += Math.max(1, (ended.result.width * ended.result.height) / 1e6);
    }
    return done;
  }

  #read({ job }: Row): OpenJob {
    return { ...job, readAtMs: this.#now() };
  }

  #heldBy({ jobId, holder, fence }: Claim): Row | undefined {
    const row = this.#rows.get(jobId);
    const isHolder = row?.job.fence === fence && row.job.lease?.holder === holder;
    return isHolder ? row : undefined;
  }

  #end(claim: Claim, ended: NonNullable<Row['ended']>, expiresAtMs: number | null): boolean {
    const row = this.#heldBy(claim);
    if (row === undefined) return false;
    const state: JobState = 'result' in ended ? 'succeeded' : 'failed';
    const erased = { input: null, background: null, hints: null, hintsFile: null, sourceUrl: null };
    this.#change(row, { ...erased, state, lease: null, finishedAtMs: this.#now(), expiresAtMs });
    row.ended = ended;
    return true;
  }

  #change(row: Row, changes: Partial<OpenJob>): void {
    const { open, free } = this.#laneOf(row.job);
    remove(free, row);
    this.#expiring.delete(row);
    const before = row.job;
    row.job = { ...before, ...changes };
    const lane = this.#laneOf(row.job);
    if (lane.open !== open || isFinal(row.job)) remove(open, row);
    if (isFinal(row.job)) return;
    if (lane.open !== open) insert(lane.open, row);
    const { lease } = row.job;
    if (lease === null) insert(lane.free, row);
    else if (Number.isFinite(lease.expiresAtMs)) this.#expiring.add(row);
  }

  #endExpired(): void {
    for (const row of this.#expiring) {
      if ((row.job.lease as JobLease).expiresAtMs > this.#now()) continue;
      this.#expiring.delete(row);
      insert(this.#laneOf(row.job).free, row);
    }
  }

  #laneOf(job: OpenJob): Lane {
    const key = laneKey(laneOf(job));
    const known = this.#lanes.get(key);
    if (known !== undefined) return known;
    const lane: Lane = { open: [], free: [] };
    this.#lanes.set(key, lane);
    return lane;
  }
}

function listed(job: OpenJob, readAtMs: number): ClaimableJob {
  return {
    id: job.id,
    fence: job.fence,
    state: job.state as ClaimableJob['state'],
    class: job.class,
    accountId: job.accountId,
    apiKeyId: job.apiKeyId,
    createdAtMs: job.createdAtMs,
    startedAtMs: job.startedAtMs,
    input: job.input,
    sourceHost: job.sourceHost,
    outputFormat: job.outputFormat,
    model: job.model,
    channels: job.channels,
    finishing: job.finishing,
    background: job.background,
    hints: job.hints,
    hintsFile: job.hintsFile,
    correction: job.correction,
    group: job.group,
    takeovers: job.takeovers,
    readAtMs,
  };
}

function compare(a: Row, b: Row): number {
  return a.queueAtMs - b.queueAtMs || (a.job.id < b.job.id ? -1 : Number(a.job.id > b.job.id));
}

function insert(rows: Row[], row: Row): void {
  rows.splice(indexOf(rows, row), 0, row);
}

function remove(rows: Row[], row: Row): void {
  const index = indexOf(rows, row);
  if (rows[index] === row) rows.splice(index, 1);
}

function indexOf(rows: readonly Row[], row: Row): number {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (compare(rows[middle]!, row) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
