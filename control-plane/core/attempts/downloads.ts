/**
 * Bounds this replica's downloads of image_url; each takes at most a minute. Accounts and hosts
 * share the slots. A host that redirects to a slow host counts as slow.
 */

import { SharedSlots, type SlotLimits } from '@matting/http/outgoing/shared-slots.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { JobFailure, QueueJob } from '@matting/queue/job.ts';
import type { BlobStore, BlobWriter } from '@matting/storage/blob-store.ts';
import type { ImageFetcher } from '../fetching/fetch-image.ts';
import type { JobInput } from '../jobs/job-request.ts';

/** If only one account downloads, it has 32 slots at most, 16 of them for one host. */
const DOWNLOAD_LIMITS: SlotLimits = {
  max: 64,
  destinationMax: 32,
  slowMax: 32,
  slowDestinationsMax: 256,
};
/** All slow hosts together share these slots. */
const SLOW_MS = 5000;

type DownloadJob = Pick<QueueJob, 'accountId' | 'sourceHost'>;

export interface Download {
  /** Call it when the request begins: the duration decides whether the host is slow. */
  started(): void;
  /** Frees the slot. False: an earlier call did. */
  end(): boolean;
}

export class Downloads {
  readonly #slots: SharedSlots;
  readonly #now: () => number;

  constructor(now: () => number, limits: SlotLimits = DOWNLOAD_LIMITS) {
    this.#slots = new SharedSlots(limits);
    this.#now = now;
  }

  get underWay(): number {
    return this.#slots.taken;
  }

  hasRoom(job: DownloadJob): boolean {
    return this.#slots.hasRoom(useOf(job));
  }

  hasRoomFor(accountId: string): boolean {
    return this.#slots.hasRoomFor(accountId);
  }

  fullHosts(accountId: string): string[] {
    return this.#slots.fullFor(accountId);
  }

  begin(job: DownloadJob): Download | undefined {
    const use = useOf(job);
    if (!this.#slots.take(use)) return undefined;
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
        this.#slots.end(use, slow);
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
  | {
      readonly kind: 'failed';
      readonly failure: JobFailure;
      /** The storage failed, not the source. */
      readonly isStorageFault?: boolean;
      readonly cause?: unknown;
    }
  | { readonly kind: 'aborted' };

interface SourceFetch {
  readonly blobs: Pick<BlobStore, 'createWriter'>;
  readonly fetcher: SourceFetcher;
  readonly kind: 'image' | 'background';
  readonly url: string;
  /** Contains the fence: an earlier claim may have stored its download and died. */
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
    return { kind: 'failed', failure, isStorageFault: true, cause: error };
  }
}

/** The blob store throws SERVICE_UNAVAILABLE; the source never does. */
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
