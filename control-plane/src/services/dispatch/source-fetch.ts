/** The image behind a job's URL into the blob store, under the job's claim. */
import { ContractError } from '#contract/errors.ts';
import type { ImageHeader } from '#contract/image-header.ts';
import type { Job, JobFailure, JobInput } from '../../domain/job.ts';
import type { BlobStore, BlobWriter } from '../../storage/blob-store.ts';
import type { Claim } from '../../store/jobs/job-store.ts';

export interface SourceFetcher {
  /** Rejects with a ContractError where the source is at fault; the writer stays the caller's. */
  fetchImage(
    url: string,
    options: {
      readonly writer: BlobWriter;
      readonly accountId: string;
      readonly signal: AbortSignal;
    },
  ): Promise<{ readonly bytes: number; readonly header: ImageHeader }>;
}

export type SourceFetchEnd =
  | { readonly kind: 'stored'; readonly input: JobInput }
  /** `cause` where the fault is ours, for the log. */
  | { readonly kind: 'failed'; readonly failure: JobFailure; readonly cause?: unknown }
  | { readonly kind: 'aborted' };

export interface SourceFetch {
  readonly blobs: Pick<BlobStore, 'createWriter'>;
  readonly fetcher: SourceFetcher;
  readonly job: Pick<Job, 'id' | 'accountId' | 'sourceUrl'>;
  readonly claim: Claim;
  readonly signal: AbortSignal;
}

/** Never rejects. */
export async function fetchSource(fetch: SourceFetch): Promise<SourceFetchEnd> {
  const { blobs, fetcher, job, claim, signal } = fetch;
  let writer: BlobWriter | undefined;
  try {
    if (job.sourceUrl === null) throw new Error('a job without an input has no URL');
    writer = await blobs.createWriter();
    const { accountId } = job;
    const options = { writer, accountId, signal };
    const { bytes, header } = await fetcher.fetchImage(job.sourceUrl, options);
    // The fence is in the name: an earlier claim may have stored its download and died.
    const blob = `inputs/${job.id}-${claim.fence}`;
    await writer.commit(blob);
    const { format, width = null, height = null } = header;
    return { kind: 'stored', input: { blob, bytes, format, width, height } };
  } catch (error) {
    const abandoned = await abandon(writer);
    if (signal.aborted) return { kind: 'aborted' };
    if (isOfTheSource(error)) {
      const { code, message, retryable } = error;
      return { kind: 'failed', failure: { code, detail: message, retryable }, cause: abandoned };
    }
    const detail = 'the image could not be stored';
    const failure: JobFailure = { code: 'PROCESSING_FAILED', detail, retryable: true };
    return { kind: 'failed', failure, cause: error };
  }
}

/** SERVICE_UNAVAILABLE is what the blob store says of itself. */
function isOfTheSource(error: unknown): error is ContractError {
  return error instanceof ContractError && error.code !== 'SERVICE_UNAVAILABLE';
}

/** What failed in it, if anything: the sweeper removes what is left. */
async function abandon(writer: BlobWriter | undefined): Promise<unknown> {
  try {
    await writer?.abort();
    return undefined;
  } catch (error) {
    return error;
  }
}
