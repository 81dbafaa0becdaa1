import type { Caller } from '@matting/accounts/keys/caller.ts';
import { settledWithin } from '@matting/program/waiting.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { BlobStore } from '@matting/storage/blob-store.ts';
import type { Logger } from 'pino';
import type { Job } from '../jobs/job.ts';
import type { Queue } from '../queue/queue.ts';
import { noSuchJob } from '../results/job-errors.ts';
import type { JobEvents } from '../results/job-events.ts';
import { UUID } from '../results/job-of-caller.ts';
import type { ResultJob, ResultReaders } from '../results/result-download.ts';

/** The answer waits at most this long for the erasure, which continues after it. */
const ERASE_MS_MAX = 1000;
const PROCESSING_RETRY_AFTER_S = 2;

export interface ErasureObserver {
  resultNotErased(): void;
}

interface DeleteJobDependencies {
  readonly queue: Pick<Queue, 'remove'>;
  readonly jobs: {
    referencedBlobs(names: readonly string[]): Promise<ReadonlySet<string>>;
    resultErased(jobId: string, blob: string): Promise<unknown>;
  };
  readonly blobs: Pick<BlobStore, 'remove'>;
  readonly readers: Pick<ResultReaders, 'cut'>;
  readonly events: Pick<JobEvents, 'jobFinal' | 'notificationDue'>;
  readonly observer: ErasureObserver;
  readonly log: Pick<Logger, 'warn'>;
}

export class DeleteJob {
  readonly #dependencies: DeleteJobDependencies;

  constructor(dependencies: DeleteJobDependencies) {
    this.#dependencies = dependencies;
  }

  /** @throws ContractError JOB_NOT_FOUND, JOB_NOT_CANCELLABLE, SERVICE_UNAVAILABLE */
  async delete({ apiKeyId }: Pick<Caller, 'apiKeyId'>, jobId: string): Promise<Job> {
    const { queue, readers, events } = this.#dependencies;
    const id = jobId.toLowerCase();
    const deletion = UUID.test(id) ? await queue.remove(id, apiKeyId) : undefined;
    if (deletion === undefined) throw noSuchJob();
    const { kind, job, blobs, family } = deletion;
    if (kind === 'processing') {
      const detail = 'A node is processing the job. Wait until it ends, then delete its result.';
      const retryAfterS = PROCESSING_RETRY_AFTER_S;
      throw new ContractError('JOB_NOT_CANCELLABLE', detail, { jobId: id, retryAfterS });
    }
    for (const ended of [...(kind === 'cancelled' ? [job] : []), ...(family?.ended ?? [])]) {
      events.jobFinal(ended.id);
      if (ended.callback !== null) events.notificationDue();
    }
    readers.cut(id);
    await settledWithin(this.#erase(job, blobs, family?.shared ?? []), ERASE_MS_MAX);
    return job;
  }

  /** Never rejects. The row keeps the name of a result that was not erased. */
  async #erase({ id, result }: ResultJob, blobs: readonly string[], shared: readonly string[]) {
    const { jobs, blobs: store, observer, log } = this.#dependencies;
    try {
      for (const blob of blobs) await store.remove(blob);
      const named = shared.length > 0 ? await jobs.referencedBlobs(shared) : undefined;
      for (const blob of shared) if (!named?.has(blob)) await store.remove(blob);
      if (result !== null) await jobs.resultErased(id, result.blob);
    } catch (err) {
      if (result !== null) observer.resultNotErased();
      log.warn({ err, jobId: id }, 'files of a deleted job are left to the sweeper');
    }
  }
}
