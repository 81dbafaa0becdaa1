/** The picture behind one of a job's URLs into the blob store, under the job's claim. */
import { ContractError } from '#contract/errors.ts';
import type { ImageFetcher } from '../fetching/fetch-image.ts';
import type { JobFailure, JobInput } from '../jobs/job.ts';
import type { BlobStore, BlobWriter } from '../storage/blob-store.ts';

export type SourceFetcher = Pick<ImageFetcher, 'fetchImage'>;

export type SourceFetchEnd =
  | { readonly kind: 'stored'; readonly input: JobInput }
  /** `cause` where the fault is ours, for the log. */
  | { readonly kind: 'failed'; readonly failure: JobFailure; readonly cause?: unknown }
  | { readonly kind: 'aborted' };

export interface SourceFetch {
  readonly blobs: Pick<BlobStore, 'createWriter'>;
  readonly fetcher: SourceFetcher;
  readonly kind: 'image' | 'background';
  readonly url: string;
  /** Name of the blob. The fence is in it: an earlier claim may have stored its download and died. */
  readonly blob: string;
  readonly accountId: string;
  readonly signal: AbortSignal;
}

/** Never rejects. */
export async function fetchSource(fetch: SourceFetch): Promise<SourceFetchEnd> {
  const { blobs, fetcher, kind, url, blob, accountId, signal } = fetch;
  let writer: BlobWriter | undefined;
  try {
    writer = await blobs.createWriter(blob);
    const options = { writer, accountId, signal, kind };
    const { bytes, header } = await fetcher.fetchImage(url, options);
    await writer.commit();
    const { format, width = null, height = null } = header;
    return { kind: 'stored', input: { blob, bytes, format, width, height } };
  } catch (error) {
    const abandoned = await abandon(writer);
    if (signal.aborted) return { kind: 'aborted' };
    if (isOfTheSource(error)) {
      const { code, message: detail, retryable } = error;
      return { kind: 'failed', failure: { code, detail, retryable }, cause: abandoned };
    }
    const detail = `the ${kind} could not be stored`;
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
