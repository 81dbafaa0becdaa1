import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import type { ByteRange } from '@matting/http/request-headers.ts';
import { noteRequestSecret, outsideRequests } from '@matting/program/request-owner.ts';
import { Semaphore } from '@matting/program/semaphore.ts';
import { settledWithin } from '@matting/program/waiting.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import {
  contentTypeOf,
  type InputFormat,
  type OutputFormat,
} from '@matting/proto/contract/formats.ts';
import { type JobStatus, publicState } from '@matting/queue/job.ts';
import { BlobNotFoundError, type BlobStore } from '@matting/storage/blob-store.ts';
import type { FastifyReply } from 'fastify';
import { thumbnailBlob } from '../jobs/blob-names.ts';
import type { Job } from '../jobs/job.ts';
import type { JobStore } from '../jobs/job-store.ts';
import { EXPIRED_LINK, type LostResults } from './lost-results.ts';

const TOKEN_LENGTH_MAX = 128;
/** Read ahead for each caller: many may be slow at once. */
const PIECE_BYTES = 64 * 1024;
/** Enough for a slow client to follow the redirect. */
const SIGNED_MS_MAX = 60_000;
/** Longest wait for the storage to confirm a file. */
const THERE_MS_MAX = 3000;
/** Signatures last whole seconds. A shorter one would be rounded up, and outlive the link. */
const SIGNED_MS_MIN = 1000;
const TOKEN = new RegExp(`^[A-Za-z0-9_-]{1,${TOKEN_LENGTH_MAX}}$`);

export interface ResultFile {
  readonly bytes: number;
  readonly contentType: string;
  readonly format: OutputFormat;
  readonly jobId: string;
  readonly accountId: string;
  readonly sha256: string;
  /** By the database's clock. */
  readonly createdAtMs: number;
  /** Until the link expires; above 0. */
  readonly remainingMs: number;
  /**
   * Bytes [start, end] inclusive.
   * @throws ContractError RESULT_EXPIRED, RESULT_LOST, SERVICE_UNAVAILABLE
   */
  open(range?: ByteRange): Promise<Readable>;
  /** Passes if the storage does not answer in time. @throws ContractError as `open` */
  requireThere(): Promise<void>;
  /**
   * At the storage, valid for a minute and never past the link's end: a secret. Undefined: use
   * `open`.
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  signedUrl(reading: ResultReading): Promise<string | undefined>;
}

/** The upload that a first job keeps for corrections. */
export type Original = Pick<ResultFile, 'bytes' | 'jobId' | 'accountId'> & {
  readonly format: InputFormat;
  /** @throws ContractError RESULT_EXPIRED: it was removed meanwhile; SERVICE_UNAVAILABLE */
  open(): Promise<Readable>;
};

interface ResultReading {
  readonly method: 'GET' | 'HEAD';
  readonly disposition: string;
}

interface ResultDownloadOptions {
  readonly jobs: Pick<JobStore, 'findByResultToken'>;
  readonly blobs: Pick<BlobStore, 'openRead' | 'stat'>;
  readonly losses: Pick<LostResults, 'refusal'>;
  /** Absent: this service sends the files. */
  readonly signRead?: BlobStore['signRead'];
}

export type ResultJob = JobStatus & Pick<Job, 'result'>;

export class ResultDownload {
  readonly #options: ResultDownloadOptions;

  constructor(options: ResultDownloadOptions) {
    this.#options = options;
  }

  /** @throws ContractError NOT_FOUND, RESULT_EXPIRED, SERVICE_UNAVAILABLE */
  async find(token: string): Promise<ResultFile> {
    const { jobs } = this.#options;
    noteRequestSecret(token);
    const job = TOKEN.test(token) ? await jobs.findByResultToken(token) : undefined;
    if (job !== undefined) return this.fileOf(job);
    throw new ContractError('NOT_FOUND', 'There is no such result. Use the result.url of the job.');
  }

  fileOf(job: ResultJob): ResultFile {
    if (publicState(job) === 'expired') {
      throw new ContractError('RESULT_EXPIRED', EXPIRED_LINK);
    }
    const { result, expiresAtMs, finishedAtMs } = job;
    if (result === null || expiresAtMs === null || finishedAtMs === null) {
      throw new Error(`job ${job.id} has no result`);
    }
    const contentType = contentTypeOf(result.format);
    const remainingMs = expiresAtMs - job.readAtMs;
    return {
      ...{ bytes: result.bytes, contentType, format: result.format, sha256: result.sha256 },
      jobId: job.id,
      accountId: job.accountId,
      createdAtMs: finishedAtMs,
      remainingMs,
      open: range => this.#open(job.id, result.blob, range),
      requireThere: () => this.#requireThere(job.id, result.blob),
      signedUrl: reading => this.#sign(result.blob, { ...reading, contentType, remainingMs }),
    };
  }

  /** @param first of a family; undefined: it keeps no picture */
  originalOf(first: JobStatus & Pick<Job, 'kept'>): Original | undefined {
    const { id, accountId, kept, readAtMs } = first;
    if (kept === null || kept.input === null || kept.untilMs <= readAtMs) return undefined;
    const { blob, bytes, format } = kept.input;
    const open = async () => {
      try {
        return await this.#options.blobs.openRead(blob, { pieceBytes: PIECE_BYTES });
      } catch (cause) {
        if (!(cause instanceof BlobNotFoundError)) throw cause;
        throw new ContractError('RESULT_EXPIRED', EXPIRED_LINK, { cause });
      }
    };
    return { jobId: id, accountId, bytes, format, open };
  }

  /** Undefined: no thumbnail, or an expired link. @throws ContractError SERVICE_UNAVAILABLE */
  async readThumbnail(job: ResultJob): Promise<Buffer | undefined> {
    const { result } = job;
    if (publicState(job) !== 'succeeded' || result === null) return undefined;
    if (result.thumbnailBytes === null) return undefined;
    try {
      return await buffer(await this.#options.blobs.openRead(thumbnailBlob(result.blob)));
    } catch (error) {
      if (error instanceof BlobNotFoundError) return undefined;
      throw error;
    }
  }

  async #sign(
    blob: string,
    { remainingMs, ...reading }: ResultReading & { contentType: string; remainingMs: number },
  ): Promise<string | undefined> {
    const { signRead } = this.#options;
    if (signRead === undefined || remainingMs < SIGNED_MS_MIN) return undefined;
    const forMs = Math.min(SIGNED_MS_MAX, remainingMs);
    try {
      return await signRead(blob, { ...reading, forMs });
    } catch (error) {
      if (error instanceof BlobNotFoundError) return undefined;
      throw error;
    }
  }

  async #open(jobId: string, blob: string, range?: ByteRange): Promise<Readable> {
    const { blobs, losses } = this.#options;
    const open = () => blobs.openRead(blob, { ...range, pieceBytes: PIECE_BYTES });
    try {
      return await open();
    } catch (error) {
      if (!(error instanceof BlobNotFoundError)) throw error;
      // The link may have expired since the row was read.
      const refusal = await losses.refusal(jobId);
      if (refusal !== undefined) throw refusal;
    }
    return await open();
  }

  async #requireThere(jobId: string, blob: string): Promise<void> {
    const { blobs, losses } = this.#options;
    const isGone = blobs.stat(blob).then(
      found => found === undefined,
      () => false,
    );
    if (!(await settledWithin(isGone, THERE_MS_MAX)) || !(await isGone)) return;
    const refusal = await losses.refusal(jobId);
    if (refusal !== undefined) throw refusal;
  }
}

export type ResultReaderBounds = typeof RESULT_READER_BOUNDS;

const RESULT_READER_BOUNDS = {
  /** A download in parts usually opens at most 16 at once. */
  linkMax: 16,
  accountMax: 256,
  max: 1024,
};

type DeletedAmong = (jobIds: readonly string[]) => Promise<readonly string[]>;

const RETRY_AFTER_S = 5;
/** Longest delay after a deletion at another replica. */
const DELETED_POLL_MS = 1000;

/** Readers need no key and may be slow, so their bounds lie far below the number of connections. */
export class ResultReaders {
  readonly #bounds: ResultReaderBounds;
  readonly #links = new Map<string, Set<() => void>>();
  readonly #all: Semaphore;

  readonly #deletedAmong: DeletedAmong;
  #poll: NodeJS.Timeout | undefined;

  /** @param deletedAmong absent: nobody deletes results */
  constructor(bounds = RESULT_READER_BOUNDS, deletedAmong: DeletedAmong = async () => []) {
    this.#bounds = bounds;
    this.#deletedAmong = deletedAmong;
    this.#all = new Semaphore({
      max: bounds.max,
      waitingMax: 0,
      refusal: () =>
        refused(
          'SERVICE_UNAVAILABLE',
          'Too many downloads run at once. Try again after Retry-After.',
        ),
    });
  }

  get open(): number {
    return this.#all.held;
  }

  cut(jobId: string): void {
    for (const cutOff of [...(this.#links.get(jobId) ?? [])]) cutOff();
  }

  /**
   * @param cutOff ends the download after a deletion
   * @returns releases the slot. @throws ContractError RATE_LIMITED, SERVICE_UNAVAILABLE
   */
  enter(
    { jobId, accountId }: { jobId: string; accountId: string },
    cutOff: () => void = () => undefined,
  ): () => void {
    const { linkMax, accountMax } = this.#bounds;
    const readers = this.#links.get(jobId) ?? new Set();
    if (readers.size >= linkMax) {
      throw refused(
        'RATE_LIMITED',
        `${linkMax} downloads of this result run already. Try again after Retry-After.`,
      );
    }
    if (this.#all.heldBy(accountId) >= accountMax) {
      const detail = `${accountMax} downloads of this account run already. Try again after Retry-After.`;
      throw refused('RATE_LIMITED', detail);
    }
    const release = this.#all.takeNow({ key: accountId });
    const reader = () => cutOff();
    this.#links.set(jobId, readers.add(reader));
    this.#poll ??= setInterval(
      () => outsideRequests(() => void this.#cutDeleted()),
      DELETED_POLL_MS,
    ).unref();
    return () => {
      if (!readers.delete(reader)) return;
      release();
      if (readers.size === 0) this.#links.delete(jobId);
      if (this.#links.size > 0) return;
      clearInterval(this.#poll);
      this.#poll = undefined;
    };
  }

  /** Never rejects: the next round asks again. */
  async #cutDeleted(): Promise<void> {
    const deleted = await this.#deletedAmong([...this.#links.keys()]).catch(() => []);
    for (const jobId of deleted) this.cut(jobId);
  }
}

function refused(code: 'RATE_LIMITED' | 'SERVICE_UNAVAILABLE', detail: string): ContractError {
  return new ContractError(code, detail, { retryAfterS: RETRY_AFTER_S });
}

/**
 * Holds the slot until the connection closes. Call it before setting the file's headers.
 * @throws ContractError RATE_LIMITED, SERVICE_UNAVAILABLE, RESULT_EXPIRED, RESULT_LOST
 */
export async function openForReader(
  reply: FastifyReply,
  file: Pick<ResultFile, 'jobId' | 'accountId' | 'open'>,
  readers: ResultReaders,
  range?: ByteRange,
): Promise<Readable> {
  const leave = readers.enter(file, () => reply.raw.destroy());
  reply.raw.once('close', leave);
  // If the caller hung up before, 'close' was already emitted.
  if (reply.raw.closed) leave();
  const stream = await file.open(range);
  if (reply.raw.closed) stream.destroy();
  return stream;
}

export function fileHeaders(file: ResultFile): Record<string, string> {
  return {
    'content-type': file.contentType,
    'content-disposition': dispositionOf(file).disposition,
    etag: etagOf(file),
  };
}

export function dispositionOf({ jobId, format }: Pick<ResultFile, 'jobId' | 'format'>) {
  return { disposition: `attachment; filename="cutout-${jobId}.${format}"` } as const;
}

/** Strong, with its quotes. */
export function etagOf({ sha256 }: Pick<ResultFile, 'sha256'>): string {
  return `"${sha256}"`;
}
