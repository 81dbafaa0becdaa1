/**
 * The downloads of image_url under way here, a minute at most each. Accounts and hosts share the
 * places; a host that redirects to a slow one is slow.
 */

import { SharedSlots, type SlotLimits } from '@matting/http/outgoing/shared-slots.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { JobFailure, QueueJob } from '@matting/queue/job.ts';
import type { BlobStore, BlobWriter } from '@matting/storage/blob-store.ts';
import type { ImageFetcher } from '../fetching/fetch-image.ts';
import type { JobInput } from '../jobs/job-request.ts';

/** An account by itself downloads 32 at once, 16 from one host. */
const DOWNLOAD_LIMITS: SlotLimits = {
  max: 64,
  destinationMax: 32,
  slowMax: 32,
  slowDestinationsMax: 256,
};
/** A host with a slower download shares its slots with others of its kind. */
const SLOW_MS = 5000;

/** An unknown host, null, counts as one of the account's own. */
type DownloadJob = Pick<QueueJob, 'accountId' | 'sourceHost'>;

export interface Download {
  /** The request begins now: its duration decides whether the host is slow. */
  started(): void;
  /** Gives the place back. False: it was given back before. */
  end(): boolean;
}

export class Downloads {
  readonly #places: SharedSlots;
  readonly #now: () => number;

  constructor(now: () => number, limits: SlotLimits = DOWNLOAD_LIMITS) {
    this.#places = new SharedSlots(limits);
    this.#now = now;
  }

  get underWay(): number {
    return this.#places.taken;
  }

  hasRoom(job: DownloadJob): boolean {
    return this.#places.hasRoom(useOf(job));
  }

  hasRoomFor(accountId: string): boolean {
    return this.#places.hasRoomFor(accountId);
  }

  fullHosts(accountId: string): string[] {
    return this.#places.fullFor(accountId);
  }

  begin(job: DownloadJob): Download | undefined {
    const use = useOf(job);
    if (!this.#places.take(use)) return undefined;
    let startedAtMs: number | undefined;
    let ended = false;
    return {
      started: () => {
        startedAtMs = this.#now();
      },
      end: () => {
        if (ended) return false;
        ended = true;
        const slow = startedAtMs === undefined ? undefined : this.#now() - startedAtMs > SLOW_MS;
        this.#places.end(use, slow);
        return true;
      },
    };
  }
}

function useOf({ accountId, sourceHost }: DownloadJob) {
  return { accountId, destination: sourceHost ?? accountId };
}

export type SourceFetcher = Pick<ImageFetcher, 'fetchImage'>;

type SourceFetchEnd =
  | { readonly kind: 'stored'; readonly input: JobInput }
  /** `cause` is for the log. */
  | {
      readonly kind: 'failed';
      readonly failure: JobFailure;
      /** The storage failed, and not the source. */
      readonly isOurs?: boolean;
      readonly cause?: unknown;
    }
  | { readonly kind: 'aborted' };

interface SourceFetch {
  readonly blobs: Pick<BlobStore, 'createWriter'>;
  readonly fetcher: SourceFetcher;
  readonly kind: 'image' | 'background';
  readonly url: string;
  /** The fence is in it: an earlier claim may have stored its download and died. */
  readonly blob: string;
  readonly accountId: string;
  readonly signal: AbortSignal;
}

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
    const detail = `The service could not store the ${kind}.`;
    const failure: JobFailure = { code: 'PROCESSING_FAILED', detail, retryable: true };
    return { kind: 'failed', failure, isOurs: true, cause: error };
  }
}

/** SERVICE_UNAVAILABLE is what the blob store says of itself. */
function isOfTheSource(error: unknown): error is ContractError {
  return error instanceof ContractError && error.code !== 'SERVICE_UNAVAILABLE';
}

async function abandon(writer: BlobWriter | undefined): Promise<unknown> {
  try {
    await writer?.abort();
    return undefined;
  } catch (error) {
    return error;
  }
}
