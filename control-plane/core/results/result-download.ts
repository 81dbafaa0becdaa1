/** A result as a file: behind its link, which needs no key, or as the answer of the call. */
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
/** Bytes read ahead for a caller: many may be slow at once. */
const PIECE_BYTES = 64 * 1024;
/** Enough for a slow client to follow the link late. */
const SIGNED_MS_MAX = 60_000;
/** The storage has this time to answer whether a file is there that the answer does not send. */
const THERE_MS_MAX = 3000;
/** A signature counts whole seconds: one for less would be good for longer than the link. */
const SIGNED_MS_MIN = 1000;
const TOKEN = new RegExp(`^[A-Za-z0-9_-]{1,${TOKEN_LENGTH_MAX}}$`);

export interface ResultFile {
  readonly bytes: number;
  readonly contentType: string;
  readonly format: OutputFormat;
  readonly jobId: string;
  readonly accountId: string;
  readonly sha256: string;
  /** The instant is on the database's clock; it never changes after. */
  readonly createdAtMs: number;
  /** The link expires after this time by the database's clock; it is above 0. */
  readonly remainingMs: number;
  /**
   * Bytes [start, end] inclusive, all without a range.
   * @throws ContractError RESULT_EXPIRED, RESULT_LOST, SERVICE_UNAVAILABLE
   */
  open(range?: ByteRange): Promise<Readable>;
  /**
   * Serves answers that do not open the file. If a storage does not answer in time, no result is
   * lost.
   * @throws ContractError as `open`
   */
  requireThere(): Promise<void>;
  /**
   * A URL at the storage, for a minute and never past the link's end: a secret, never logged.
   * Undefined: the file is sent by `open`.
   * @throws ContractError SERVICE_UNAVAILABLE
   */
  signedUrl(reading: ResultReading): Promise<string | undefined>;
}

/** The picture that was sent, as a first job keeps it for corrections. */
export type Original = Pick<ResultFile, 'bytes' | 'jobId' | 'accountId'> & {
  readonly format: InputFormat;
  /** @throws ContractError RESULT_EXPIRED: it went meanwhile; SERVICE_UNAVAILABLE */
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
  /** If it is absent, this service sends the files. */
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

  /** @param first of a family; undefined: it keeps no picture (any more) */
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

  /**
   * Reads the thumbnail while the result's link is good; undefined: there is none.
   * @throws ContractError SERVICE_UNAVAILABLE
   */
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
      // The storage has the blob where nothing is signed: `open` finds it.
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
      // Between the row's reading and now the link may have expired and been swept.
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
  /** Readers of one link: a download in parts usually takes at most 16 at once. */
  linkMax: 16,
  /** Readers of all links of one account, however many places are free. */
  accountMax: 256,
  max: 1024,
};

type DeletedAmong = (jobIds: readonly string[]) => Promise<readonly string[]>;

const RETRY_AFTER_S = 5;
/** A download here is cut so late after a deletion at another replica. */
const DELETED_POLL_MS = 1000;

/**
 * Slots for readers of results, who need no key and may be slow: one link, one account's links and
 * all links have a bound, far below the number of connections. Accounts share the slots fairly.
 */
export class ResultReaders {
  readonly #bounds: ResultReaderBounds;
  /** Functions that cut off each reader of a result, by the job. */
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

  /** Ends the downloads of a result that its caller deleted. */
  cut(jobId: string): void {
    for (const cutOff of [...(this.#links.get(jobId) ?? [])]) cutOff();
  }

  /**
   * @param cutOff ends the download: called where its result was deleted, here or at any replica
   * @returns what gives the place back. @throws ContractError RATE_LIMITED, SERVICE_UNAVAILABLE
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
 * Opens the file for the reader of this answer, whose place it holds until the connection closes.
 * Called before the file's headers are set: a file that is missing is answered with an error.
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
