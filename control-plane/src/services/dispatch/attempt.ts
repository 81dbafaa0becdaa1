/**
 * One attempt of a claimed job on one node: the input out of the blob store, the result into it,
 * the admission into the job's row. It decides nothing; the outcome is the job runner's to read.
 */
import type { Job, JobInput } from '../../domain/job.ts';
import { JOB_MS_MAX } from '../../domain/lease.ts';
import type { AttemptOutcome } from '../../nodes/attempt-outcome.ts';
import type { Offer } from '../../nodes/node-link.ts';
import type { BlobStore, BlobWriter } from '../../storage/blob-store.ts';
import type { Claim } from '../../store/jobs/job-store.ts';
import type { HeldLease } from './held-lease.ts';

export interface AttemptOrder {
  readonly job: Job;
  readonly claim: Claim;
  readonly input: JobInput;
  readonly offer: Offer;
  readonly blobs: Pick<BlobStore, 'createWriter' | 'openRead'>;
  readonly lease: HeldLease;
  readonly attemptTimeoutMs: number;
  /** Since the job's submission. */
  readonly ageMs: () => number;
  readonly onAdmitted: (waitMs: number) => void;
  /** Writes the admission down; false: the lease is lost. */
  readonly recordAdmitted: () => Promise<boolean>;
}

export interface AttemptResult {
  readonly outcome: AttemptOutcome;
  /** From submission to Admitted; 0 where the node did not admit it. */
  readonly waitMs: number;
  /** Only after `done`: makes the result durable under that name. The rest is removed already. */
  readonly commit: (name: string) => Promise<void>;
}

/** Rejects where the admission cannot be written down: the database is away. */
export async function runAttempt(order: AttemptOrder): Promise<AttemptResult> {
  const { job, claim, input, offer, blobs, lease } = order;
  const sink = new BlobSink(blobs);
  let waitMs = 0;
  let recorded: Promise<boolean> | undefined;
  const outcome = await offer.client.matte({
    jobId: job.id,
    attempt: claim.fence,
    inputBytes: input.bytes,
    inputFormat: input.format,
    width: input.width,
    height: input.height,
    outputFormat: job.outputFormat,
    sync: job.mode === 'sync',
    waitMsMax: offer.waitMsMax,
    openInput: () => blobs.openRead(input.blob),
    sink,
    signal: lease.signal,
    // The job's own end comes first where it is nearer.
    timeoutMs: Math.max(1, Math.min(order.attemptTimeoutMs, JOB_MS_MAX - order.ageMs())),
    onAdmitted: () => {
      offer.admitted();
      waitMs = order.ageMs();
      order.onAdmitted(waitMs);
      // Beside the upload: the row is behind by a moment, and nobody waits for it.
      recorded = recordOrLose(order);
      // Awaited below; until then a failure must not count as unhandled.
      recorded.catch(() => undefined);
    },
  });
  try {
    // In order: what follows the attempt is written after its admission.
    await recorded;
  } catch (error) {
    await sink.abort();
    throw error;
  }
  if (outcome.kind !== 'done' || lease.end === 'lost') {
    await sink.abort();
    return {
      outcome: lease.end === 'lost' ? { kind: 'aborted' } : outcome,
      waitMs,
      commit: nothing,
    };
  }
  return { outcome, waitMs, commit: name => sink.commit(name) };
}

async function recordOrLose(order: AttemptOrder): Promise<boolean> {
  const stands = await order.recordAdmitted();
  if (!stands) order.lease.lose();
  return stands;
}

function nothing(): Promise<never> {
  return Promise.reject(new Error('this attempt has no result to commit'));
}

/** Opens its blob with the first byte: refused attempts cost no file. */
class BlobSink {
  readonly #blobs: Pick<BlobStore, 'createWriter'>;
  #writer: BlobWriter | undefined;

  constructor(blobs: Pick<BlobStore, 'createWriter'>) {
    this.#blobs = blobs;
  }

  async write(chunk: Uint8Array): Promise<void> {
    this.#writer ??= await this.#blobs.createWriter();
    await this.#writer.write(chunk);
  }

  async commit(name: string): Promise<void> {
    if (this.#writer === undefined) throw new Error('a result without bytes');
    try {
      await this.#writer.commit(name);
    } catch (error) {
      await this.#writer.abort();
      throw error;
    }
  }

  async abort(): Promise<void> {
    await this.#writer?.abort();
  }
}
