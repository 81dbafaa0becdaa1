/**
 * Runs a job from its claim to its end, with one offer of a node at a time, which it ends before it
 * writes the outcome.
 *
 * | attempt     | then                                                                          |
 * |-------------|-------------------------------------------------------------------------------|
 * | done        | succeeded                                                                     |
 * | refused     | another node if one has room, else given back                                 |
 * | rejected    | once more, on another node if there is one; then failed, not retryable        |
 * | lost        | counted as lost, and given back                                               |
 * | node-fault  | once more, as above; then failed, retryable                                   |
 * | image-fault | failed with the node's code                                                   |
 * | local-fault | if the storage is full: given back; after a wrong read: once more; else       |
 * |             | failed, retryable                                                             |
 * | aborted     | given back, unless the lease is lost                                          |
 *
 * No transaction is open during a download or an attempt.
 */

import { type AttemptOutcome, fullnessBy, verdictOn } from '@matting/nodes/attempt-outcome.ts';
import type { MatteCall } from '@matting/nodes/matte-client-call.ts';
import type { Offer } from '@matting/nodes/node-link.ts';
import {
  asSpan,
  carrierOf,
  describeSpan,
  failSpan,
  recordSpan,
  type StartedSpan,
  type Tracing,
  traced,
  underSpan,
} from '@matting/program/tracing/active-span.ts';
import { ContractError, ERROR_CATALOGUE, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { frameRefusal } from '@matting/proto/contract/finishing/frame.ts';
import type { Placed, RunEnd } from '@matting/queue/dispatch-core.ts';
import { type JobFailure, type JobStatus, modeOf } from '@matting/queue/job.ts';
import type { JobMemories } from '@matting/queue/job-memories.ts';
import { failureDue, JOB_MS_MAX, LEASE_TIMING } from '@matting/queue/lease-rules.ts';
import { type BlobStore, isStorageFull } from '@matting/storage/blob-store.ts';
import {
  ClaimedJob,
  type ClaimedJobDependencies,
  type Ending,
  STORAGE_FAILED,
  STORAGE_FULL,
} from '../attempts/claimed-job.ts';
import { type Download, fetchSource, type SourceFetcher } from '../attempts/downloads.ts';
import type { JobObserver } from '../attempts/job-observer.ts';
import { BlobSink } from '../attempts/result-blob.ts';
import { backgroundBlob } from '../jobs/blob-names.ts';
import type { FamilyJob } from '../jobs/job-family.ts';
import { type JobInput, type JobRequest, sizeOf } from '../jobs/job-request.ts';
import type { ClaimableJob, Claimed, OpenJob, Queue } from '../queue/queue.ts';
import { type JobNeeds, missingCapability, needsOf } from './job-needs.ts';

const NODE_FAULTS_MAX = 2;
/** A second faulty read means that the stored bytes are damaged, not their transfer. */
const READ_FAULTS_MAX = 2;
/** Refusals allowed in one claim: a node may report room and refuse every job. */
const REFUSALS_MAX = 8;
/** Counted since a node last admitted the job. */
const REFUSALS_BEFORE_WARNING = 10;
const ROOM_CODES: ReadonlySet<ErrorCode> = new Set([
  'NODE_OVERLOADED',
  'NODE_SHORT_OF_MEMORY',
  'CALLER_OVER_LIMIT',
]);

export interface JobRunDependencies extends ClaimedJobDependencies {
  readonly queue: Pick<Queue, 'claim'> & ClaimedJobDependencies['queue'];
  readonly blobs: Pick<BlobStore, 'createWriter' | 'openRead' | 'remove' | 'stat'>;
  readonly fetcher: SourceFetcher;
  readonly observer: JobObserver;
  readonly holder: string;
  readonly attemptTimeoutMs: number;
  readonly tracing?: Tracing | undefined;
}

export interface RunOwner {
  readonly memories: JobMemories;
  takeOffer(job: ClaimableJob, needs: JobNeeds): Offer | undefined;
  readonly refusal: RefusalOfNodes;
  /** @returns whether no other job waits for a node */
  downloadEnded(): boolean;
  readonly stop: AbortSignal;
}

export class JobRun {
  readonly #dependencies: JobRunDependencies;
  readonly #owner: RunOwner;
  readonly #listed: ClaimableJob;
  readonly #due: JobFailure | undefined;
  #offer: Offer | undefined;
  #download: Download | undefined;
  #admitted = false;

  constructor(
    dependencies: JobRunDependencies,
    owner: RunOwner,
    { job, placement }: Placed<ClaimableJob, Offer, Download>,
  ) {
    this.#dependencies = dependencies;
    this.#owner = owner;
    this.#listed = job;
    this.#due = placement.kind === 'failure' ? placement.failure : undefined;
    this.#offer = placement.kind === 'node' ? placement.offer : undefined;
    this.#download = placement.kind === 'download' ? placement.download : undefined;
  }

  async run(): Promise<RunEnd> {
    const { queue, holder, tracing, leaseTiming = LEASE_TIMING } = this.#dependencies;
    try {
      const claimMs = Date.now();
      const claimed = await queue.claim(this.#listed, holder, leaseTiming.leaseMs);
      if (claimed === undefined) return { kind: 'not-claimed' };
      const span = beginRunSpan(tracing, claimed.job, claimMs, Date.now());
      return await asSpan(span, () => this.#hold(claimed));
    } finally {
      this.#endOffer();
      this.#endDownload();
    }
  }

  async #hold(claimed: Claimed): Promise<RunEnd> {
    const { observer, log } = this.#dependencies;
    if (claimed.job.takeovers > this.#listed.takeovers) {
      observer.takenOver();
      log.info({ jobId: claimed.job.id, fence: claimed.claim.fence }, 'job taken over');
    }
    this.#download?.started();
    const held = new ClaimedJob(this.#dependencies, claimed, this.#owner.stop);
    try {
      const ending = await this.#work(held);
      describeSpan({ 'matting.outcome': ending.kind });
      if (ending.kind === 'failed') describeSpan({ 'error.type': ending.failure.code });
      return await held.end(ending);
    } finally {
      held.close();
    }
  }

  async #work(held: ClaimedJob): Promise<Ending> {
    const failure = failureDue(held.job) ?? this.#due;
    if (failure !== undefined) return { kind: 'failed', failure: this.#explained(failure) };
    const { input, background, sourceUrl } = held.job;
    if (input === null) return await this.#fetch(held, 'image', sourceUrl);
    if (background?.input === null) return await this.#fetch(held, 'background', background.url);
    return await this.#tryNodes(held, { input, background: background?.input ?? null });
  }

  #explained(failure: JobFailure): JobFailure {
    const wasFull = this.#owner.memories.find(this.#listed.id)?.storageFulls;
    return wasFull && failure.retryable ? { ...failure, detail: STORAGE_FULL } : failure;
  }

  /** One picture a claim: a second one may have to wait for a slot of its host. */
  async #fetch(
    held: ClaimedJob,
    kind: 'image' | 'background',
    url: string | null,
  ): Promise<Ending> {
    const { blobs, fetcher, observer, log } = this.#dependencies;
    const { job, claim, signal } = held;
    if (url === null) throw new Error(`job ${job.id} has neither its ${kind} nor a URL of it`);
    const { id, accountId } = job;
    const blob = kind === 'image' ? `inputs/${id}-${claim.fence}` : backgroundBlob(id, claim.fence);
    const source = { blobs, fetcher, kind, url, blob, accountId, signal };
    const fetched = await traced({ name: 'download' }, async () => {
      const end = await fetchSource(source);
      describeSpan({ 'matting.outcome': end.kind });
      if (end.kind === 'failed') failSpan(end.failure.code);
      return end;
    });
    observer.fetchEnded(fetched.kind);
    switch (fetched.kind) {
      case 'stored':
        return await this.#stored(held, kind, fetched.input);
      case 'failed':
        if (fetched.cause !== undefined) log.error({ err: fetched.cause, jobId: id }, 'not stored');
        if (fetched.isStorageFault && isStorageFull(fetched.cause)) {
          return { kind: 'given-back', storageFull: true };
        }
        return { kind: 'failed', failure: fetched.failure };
      case 'aborted':
        return { kind: 'given-back' };
    }
  }

  async #stored(
    held: ClaimedJob,
    kind: 'image' | 'background',
    picture: JobInput,
  ): Promise<Ending> {
    const isImage = kind === 'image';
    const isStored = await (isImage ? held.inputStored(picture) : held.backgroundStored(picture));
    const { job } = held;
    const input = isImage ? picture : job.input;
    if (!isStored || input === null) return { kind: 'given-back' };
    const background = isImage ? (job.background?.input ?? null) : picture;
    const refused = refusalEnding(job, { input, background }, this.#owner.refusal);
    if (refused !== undefined) return refused;
    if (job.background !== null && background === null) return { kind: 'given-back' };
    return await this.#tryNodes(held, { input, background });
  }

  async #tryNodes(held: ClaimedJob, pictures: Pictures): Promise<Ending> {
    // A downloaded job queues behind jobs that already wait for a node.
    if (this.#endDownload() === 'wait') return { kind: 'given-back' };
    const { memories } = this.#owner;
    const needs = needsOfPictures(held.job, pictures);
    let offers = 0;
    for (; offers < REFUSALS_MAX; offers += 1) {
      this.#offer ??= this.#owner.takeOffer(this.#listed, needs);
      if (this.#offer === undefined) break;
      // The node was chosen from the queue's list, which does not contain the hints' shapes.
      if (missingCapability(this.#offer.abilities, needs) !== undefined) {
        memories.nodeIncapable(held.job.id, this.#offer.bootId);
        this.#endOffer();
        continue;
      }
      const next = await this.#tracedAttempt(held, pictures, this.#offer);
      if (next.kind !== 'another-node') return next;
    }
    if (offers > 0 && !this.#admitted) memories.claimRefused(held.job.id);
    const refused = offers > 0 && refusalEnding(held.job, pictures, this.#owner.refusal);
    return refused || { kind: 'given-back' };
  }

  #tracedAttempt(held: ClaimedJob, pictures: Pictures, offer: Offer) {
    const { bytes, format } = pictures.input;
    const { id: jobId, correction } = held.job;
    if (correction?.cropRun && !offer.cropRun) {
      const { nodeId } = offer;
      this.#dependencies.log.info({ jobId, nodeId }, 'correction without runs on crops');
    }
    const attributes = {
      'matting.node.id': offer.nodeId,
      'matting.input.bytes': bytes,
      'matting.input.format': format,
      'matting.output.format': held.job.outputFormat,
    };
    return traced({ name: 'attempt', attributes }, () => this.#attempt(held, pictures, offer));
  }

  async #attempt(
    held: ClaimedJob,
    { input, background }: Pictures,
    offer: Offer,
  ): Promise<Ending | { readonly kind: 'another-node' }> {
    const { blobs, attemptTimeoutMs } = this.#dependencies;
    const { job, claim, signal } = held;
    const timeoutMs = Math.max(1, Math.min(attemptTimeoutMs, JOB_MS_MAX - held.ageMs));
    const resultBlob = `results/${job.id}-${claim.fence}`;
    const sink = new BlobSink(blobs, resultBlob);
    let waitMs = 0;
    let recorded: Promise<void> | undefined;
    const answer = await offer.client.matte({
      jobId: job.id,
      attempt: claim.fence,
      inputBytes: input.bytes,
      inputFormat: input.format,
      width: input.width,
      height: input.height,
      outputFormat: job.outputFormat,
      ...finishingOf(job, background, blobs),
      ...hintsOf(job, blobs),
      ...mattesOf(job, blobs),
      model: offer.model,
      sync: job.class === 'sync',
      waitMsMax: offer.waitMsMax,
      openInput: () => blobs.openRead(input.blob),
      sink,
      signal,
      timeoutMs,
      onAdmitted: () => {
        offer.admitted();
        waitMs = held.ageMs;
        this.#noteAdmission(held, waitMs);
        // Awaited below; until then a rejection must not count as unhandled.
        recorded = held.admitted();
        recorded.catch(() => undefined);
      },
    });
    try {
      await recorded;
    } catch (error) {
      await sink.abort();
      throw error;
    }
    const outcome: AttemptOutcome = held.leaseLost ? { kind: 'aborted' } : answer;
    if (outcome.kind !== 'done') await sink.abort();
    this.#noteOutcome(held, outcome, offer);
    if (outcome.kind === 'done') {
      this.#endOffer();
      return {
        kind: 'succeeded',
        result: outcome.result,
        stored: sink,
        nodeId: offer.nodeId,
        waitMs,
      };
    }
    this.#noteRefusal(held, outcome);
    const next = this.#after(outcome, offer);
    this.#endOffer(fullnessBy(outcome));
    return next;
  }

  #noteOutcome(held: ClaimedJob, outcome: AttemptOutcome, offer: Offer): void {
    const verdict = verdictOn(outcome);
    if (verdict !== undefined) offer.judge(verdict);
    const reason = reasonOf(outcome);
    this.#dependencies.observer.attemptEnded(outcome.kind, reason);
    describeSpan({ 'matting.outcome': outcome.kind });
    if (outcome.kind !== 'done') describeSpan({ 'error.type': reason ?? outcome.kind });
    this.#logAttempt(held, outcome, offer);
  }

  #noteRefusal({ job }: ClaimedJob, outcome: AttemptOutcome): void {
    if (outcome.kind !== 'refused' || ROOM_CODES.has(outcome.error.code)) return;
    const refusals = this.#owner.memories.refused(job.id);
    if (refusals !== REFUSALS_BEFORE_WARNING) return;
    const { observer, log } = this.#dependencies;
    const { code, message } = outcome.error;
    observer.jobRefused();
    log.warn({ jobId: job.id, code, message }, 'nodes refuse a job again and again');
  }

  #noteAdmission({ job }: ClaimedJob, waitMs: number): void {
    const isFirst = job.startedAtMs === null && !this.#admitted;
    if (isFirst) this.#dependencies.observer.jobAdmitted(job.class, waitMs);
    this.#admitted = true;
    this.#owner.memories.admitted(job.id);
  }

  #after(
    outcome: Exclude<AttemptOutcome, { kind: 'done' }>,
    { nodeId, bootId, cropRun }: Offer,
  ): Ending | { readonly kind: 'another-node' } {
    const { memories } = this.#owner;
    const { id } = this.#listed;
    const isOfCropRun = cropRun && mayComeFromCropRun(outcome);
    if (isOfCropRun) memories.extraFailed(id, bootId);
    switch (outcome.kind) {
      case 'image-fault':
        return { kind: 'failed', failure: failureOf(outcome.error) };
      case 'local-fault':
        if (isStorageFull(outcome.error)) return { kind: 'given-back', storageFull: true };
        return outcome.reading && memories.readFault(id) < READ_FAULTS_MAX
          ? { kind: 'another-node' }
          : { kind: 'failed', failure: STORAGE_FAILED };
      case 'aborted':
        return { kind: 'given-back' };
      case 'lost':
        memories.nodeLost(id, nodeId);
        return { kind: 'attempt-lost', withProcess: outcome.withProcess };
      case 'refused':
        if (isIncapacity(outcome) && !isOfCropRun) memories.nodeIncapable(id, bootId);
        return { kind: 'another-node' };
      case 'rejected':
      case 'node-fault':
        return memories.nodeFault(id, nodeId) < NODE_FAULTS_MAX
          ? { kind: 'another-node' }
          : { kind: 'failed', failure: outcome.kind === 'rejected' ? REJECTED : NODE_FAULTS };
    }
  }

  #endOffer(full?: ReturnType<typeof fullnessBy>): void {
    this.#offer?.end(full);
    this.#offer = undefined;
  }

  #endDownload(): 'continue' | 'wait' {
    if (this.#download === undefined) return 'continue';
    this.#download.end();
    this.#download = undefined;
    return this.#owner.downloadEnded() ? 'continue' : 'wait';
  }

  #logAttempt({ job, claim }: ClaimedJob, outcome: AttemptOutcome, offer: Offer): void {
    if (outcome.kind === 'done' || outcome.kind === 'image-fault') return;
    const { log } = this.#dependencies;
    const { nodeId, bootId } = offer;
    const fields = { jobId: job.id, fence: claim.fence, nodeId, bootId, outcome: outcome.kind };
    if (outcome.kind === 'local-fault') log.error({ ...fields, err: outcome.error }, 'attempt');
    else if (outcome.kind === 'aborted') log.info(fields, 'attempt');
    else {
      const { code, message } = outcome.error;
      // Another replica may have filled the node meanwhile, so nobody is to blame.
      const isBlameless = outcome.kind === 'refused' && verdictOn(outcome) === undefined;
      if (isBlameless) log.info({ ...fields, code, message }, 'attempt');
      else log.warn({ ...fields, code, message }, 'attempt');
    }
  }
}

const NODE_FAULTS: JobFailure = {
  code: 'PROCESSING_FAILED',
  detail: 'The service failed while it processed the image.',
  retryable: true,
};

const REJECTED: JobFailure = {
  code: 'PROCESSING_FAILED',
  detail:
    'The inference nodes reject this request. Send the job_id to the operator of the service.',
  retryable: false,
};

const isIncapacity = ({ error }: { readonly error: unknown }) =>
  error instanceof ContractError && error.code === 'NODE_INCAPABLE';

/** True: without the crop run the node may make the correction (docs/adr/0062). */
function mayComeFromCropRun(outcome: AttemptOutcome): boolean {
  if (outcome.kind === 'lost') return outcome.withProcess;
  if (outcome.kind === 'refused') return isIncapacity(outcome);
  return outcome.kind === 'rejected' || outcome.kind === 'node-fault';
}

/** Callers never see codes that only nodes use. */
function failureOf(error: ContractError): JobFailure {
  const code = ERROR_CATALOGUE[error.code].scope === 'public' ? error.code : 'PROCESSING_FAILED';
  return { code, detail: error.message, retryable: error.retryable };
}

function reasonOf(outcome: AttemptOutcome) {
  return 'error' in outcome && outcome.error instanceof ContractError
    ? outcome.error.code
    : undefined;
}

interface Pictures {
  readonly input: JobInput;
  readonly background: JobInput | null;
}

function finishingOf(
  { channels, finishing }: Pick<JobRequest, 'channels' | 'finishing'>,
  background: JobInput | null,
  blobs: Pick<BlobStore, 'openRead'>,
): Pick<MatteCall, 'channels' | 'finishing' | 'background'> {
  if (finishing === null) return {};
  if (background === null) return { channels, finishing };
  const open = () => blobs.openRead(background.blob);
  return { channels, finishing, background: { ...background, open } };
}

function hintsOf(
  { hints, hintsFile }: Pick<JobRequest, 'hints' | 'hintsFile'>,
  blobs: Pick<BlobStore, 'openRead'>,
): Pick<MatteCall, 'hints' | 'hintsFile'> {
  if (hints === null) return {};
  if (hintsFile === null) return { hints };
  return { hints, hintsFile: { ...hintsFile, open: () => blobs.openRead(hintsFile.blob) } };
}

/** Jobs that take corrections return a matte; a correction also begins with one. */
function mattesOf(
  { correctable, correction }: Pick<FamilyJob, 'correctable' | 'correction'>,
  blobs: Pick<BlobStore, 'openRead'>,
): Pick<MatteCall, 'matte' | 'givenMatte'> {
  if (correctable === null) return {};
  const given = correction?.matte;
  if (!given) return { matte: true };
  return { matte: true, givenMatte: { ...given, open: () => blobs.openRead(given.blob) } };
}

type RequestedJob = Pick<JobStatus, 'id'> & JobRequest & Pick<FamilyJob, 'correctable'>;

function needsOfPictures(job: RequestedJob, { input, background }: Pictures): JobNeeds {
  return needsOf(input, { ...job, background: { input: background } });
}

/** Says why no node can do the job; undefined: a node can, or may come. */
type RefusalOfNodes = (jobId: string, needs: JobNeeds) => ContractError | undefined;

function refusalEnding(
  job: RequestedJob,
  pictures: Pictures,
  refusalOfNodes: RefusalOfNodes,
): Extract<Ending, { kind: 'failed' }> | undefined {
  const needs = needsOfPictures(job, pictures);
  const size = sizeOf(pictures.input);
  const { steps, frame } = needs.finishing ?? {};
  const tooLarge = steps && frame && size && frameRefusal(steps, size, frame.least);
  const refusal = tooLarge ?? refusalOfNodes(job.id, needs);
  return refusal && { kind: 'failed', failure: failureOf(refusal) };
}

function beginRunSpan(
  tracing: Tracing | undefined,
  job: Pick<OpenJob, 'id' | 'class' | 'fence' | 'takeovers' | 'createdAtMs' | 'readAtMs'> &
    Pick<JobRequest, 'traceContext'>,
  claimMs: number,
  claimedMs: number,
): StartedSpan | undefined {
  if (tracing === undefined) return undefined;
  const parent = carrierOf(job.traceContext);
  const attributes = {
    'matting.job.id': job.id,
    'matting.job.mode': modeOf(job),
    'matting.job.fence': job.fence,
    'matting.job.taken_over': job.takeovers > 0,
  };
  // Only the first claim knows when the wait began.
  if (parent !== undefined && job.fence === 1) {
    const submittedMs = claimedMs - (job.readAtMs - job.createdAtMs);
    const startTime = Math.min(submittedMs, claimMs);
    tracing.start({ name: 'queue', attributes, startTime }, parent).span.end(claimMs);
  }
  const begin = { name: 'run', kind: 'CONSUMER', attributes, startTime: claimMs } as const;
  const run = tracing.start(begin, parent);
  underSpan(run, () => recordSpan({ name: 'claim', startTime: claimMs }, claimedMs));
  return run;
}
