/**
 * A result as a file: behind its link, whose token cannot be guessed and is all that is needed, no
 * key; or as the answer of the call that made it.
 */
import type { Readable } from 'node:stream';
import { ContractError } from '#contract/errors.ts';
import { contentTypeOf, type OutputFormat } from '#contract/formats.ts';
import { type Job, publicState } from '../../domain/job.ts';
import { BlobNotFoundError, type BlobStore } from '../../storage/blob-store.ts';
import type { JobStore } from '../../store/jobs/job-store.ts';
import type { DatabaseTurns } from '../database-turns.ts';

/** Above any token this service makes; a longer one is not looked up. */
const TOKEN_LENGTH_MAX = 128;
/** Bytes read ahead for a caller: many may be slow at once. */
const PIECE_BYTES = 64 * 1024;
const TOKEN = new RegExp(`^[A-Za-z0-9_-]{1,${TOKEN_LENGTH_MAX}}$`);

export interface ResultFile {
  readonly bytes: number;
  readonly contentType: string;
  readonly format: OutputFormat;
  /** For the file's name on the caller's disk. */
  readonly jobId: string;
  readonly accountId: string;
  /** Hexadecimal. */
  readonly sha256: string;
  /** When it was made, by the database's clock, UTC milliseconds; it never changes after. */
  readonly createdAtMs: number;
  /** Until the link expires, by the database's clock; above 0. */
  readonly remainingMs: number;
  /** Bytes [start, end] inclusive, all without a range. Rejects as `find` does. */
  open(range?: { readonly start: number; readonly end: number }): Promise<Readable>;
}

export class ResultDownload {
  readonly #jobs: Pick<JobStore, 'findByResultToken'>;
  readonly #blobs: Pick<BlobStore, 'openRead'>;
  readonly #turns: Pick<DatabaseTurns, 'ofStranger'>;

  constructor(
    jobs: Pick<JobStore, 'findByResultToken'>,
    blobs: Pick<BlobStore, 'openRead'>,
    turns: Pick<DatabaseTurns, 'ofStranger'>,
  ) {
    this.#jobs = jobs;
    this.#blobs = blobs;
    this.#turns = turns;
  }

  /** @throws ContractError NOT_FOUND, RESULT_EXPIRED, SERVICE_UNAVAILABLE */
  async find(token: string): Promise<ResultFile> {
    const read = () => this.#jobs.findByResultToken(token);
    const job = TOKEN.test(token) ? await this.#turns.ofStranger(token, read) : undefined;
    if (job === undefined) throw new ContractError('NOT_FOUND', 'there is no such result');
    return this.fileOf(job);
  }

  /**
   * The result of a job that succeeded, by its row as it was read.
   * @throws ContractError RESULT_EXPIRED
   */
  fileOf(job: Job): ResultFile {
    if (publicState(job) === 'expired') throw expired();
    const { result, expiresAtMs, finishedAtMs } = job;
    if (result === null || expiresAtMs === null || finishedAtMs === null) {
      throw new Error(`job ${job.id} has no result`);
    }
    return {
      bytes: result.bytes,
      contentType: contentTypeOf(result.format),
      format: result.format,
      jobId: job.id,
      accountId: job.accountId,
      sha256: result.sha256,
      createdAtMs: finishedAtMs,
      remainingMs: expiresAtMs - job.readAtMs,
      open: range => this.#open(result.blob, range),
    };
  }

  async #open(blob: string, range?: { start: number; end: number }): Promise<Readable> {
    try {
      return await this.#blobs.openRead(blob, { ...range, pieceBytes: PIECE_BYTES });
    } catch (error) {
      // Between the row's reading and now the link may have expired and been swept.
      if (error instanceof BlobNotFoundError) throw expired(error);
      throw error;
    }
  }
}

function expired(cause?: unknown): ContractError {
  return new ContractError('RESULT_EXPIRED', 'this result link has expired', { cause });
}
