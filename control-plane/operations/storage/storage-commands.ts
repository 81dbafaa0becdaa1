/** Runs `storage check|lifecycle|migrate`, and copies one storage's blobs to another. */
import { createHash } from 'node:crypto';
import { type CliContext, CommandError } from '@matting/core/cli/context.ts';
import { loadStorageConfig } from '@matting/core/settings.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { JOB_MS_MAX } from '@matting/queue/lease-rules.ts';
import {
  BlobNotFoundError,
  type BlobStore,
  type HashedBlob,
  hashOf,
} from '@matting/storage/blob-store.ts';
import {
  checkStorage,
  openStorage,
  openStorageToRead,
  StorageConfigError,
  storageKindOf,
} from '@matting/storage/open-storage.ts';
import { type Command, InvalidArgumentError } from 'commander';

/** Two lines of progress are this far apart. */
const PROGRESS_MS = 10_000;
const NAMED_MAX = 20;

interface MigrateOptions {
  readonly remove?: boolean;
}

export function addStorageCommands(program: Command, context: CliContext): void {
  const storage = program.command('storage').description('check, tidy and move the storage');
  storage
    .command('check')
    .description('test MATTING_STORAGE_URL; exit 1 if it fails')
    .action(() => check(context));
  storage
    .command('lifecycle')
    .description('print a lifecycle rule for the bucket (JSON for PutBucketLifecycleConfiguration)')
    .option('--result-days <days>', 'lifetime of result links in days', parseDays)
    .action(({ resultDays }: { resultDays?: number }) => lifecycle(context, resultDays));
  storage
    .command('migrate')
    .description('copy all blobs to another storage while the service runs')
    .argument('<from>', 'directory, file:///path or s3://bucket/prefix')
    .argument('<to>', 'directory, file:///path or s3://bucket/prefix')
    .option('--remove', 'remove each blob from <from> after its copy is verified')
    .action((from: string, to: string, options: MigrateOptions) =>
      migrate(context, from, to, options),
    );
}

async function check(context: CliContext): Promise<void> {
  const { storageUrl, storageKinds } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  const findings = await checkStorage(storageUrl, storageKinds);
  const failed = findings.filter(({ problem }) => problem !== undefined);
  context.report({ ok: failed.length === 0, findings }, () =>
    findings.map(({ ability, problem }) =>
      problem === undefined ? `ok    ${ability}` : `FAIL  ${ability}: ${problem}`,
    ),
  );
  if (failed.length > 0) {
    throw new CommandError(
      `the storage failed ${failed.length} of ${findings.length} checks; see docs/storage.md`,
    );
  }
}

function lifecycle(context: CliContext, resultDays: number | undefined): void {
  const { storageUrl, storageKinds, resultTtlMs } = loadStorageConfig(
    context.environment,
    context.packages.storageKinds,
  );
  const kind = storageKindOf(storageUrl, storageKinds);
  if (kind === undefined) {
    const message = 'a directory needs no lifecycle rules; the sweeper tidies it';
    throw new StorageConfigError(`MATTING_STORAGE_URL: ${message}`);
  }
  const lifeMs = resultDays === undefined ? resultTtlMs : resultDays * DAY_MS;
  const rules = kind.lifecycle(storageUrl, { resultTtlMs: lifeMs, jobMsMax: JOB_MS_MAX });
  context.print(JSON.stringify(rules, undefined, 2));
}

function parseDays(text: string): number {
  if (!/^[1-9]\d{0,3}$/.test(text))
    throw new InvalidArgumentError('Use a number of days from 1 to 9999.');
  return Number(text);
}

async function migrate(
  context: CliContext,
  fromUrl: string,
  toUrl: string,
  options: MigrateOptions,
): Promise<void> {
  if (fromUrl === toUrl) throw new CommandError('<from> and <to> are the same storage; name two');
  const { storageKinds } = loadStorageConfig(context.environment, context.packages.storageKinds);
  const ofFrom = { storageKinds, setting: '<from>' };
  // A directory that does not exist would be created, and nothing copied.
  const read = await openStorageToRead(fromUrl, ofFrom);
  const from = options.remove === true ? await openStorage(fromUrl, ofFrom) : read;
  const to = await openStorage(toUrl, { storageKinds, setting: '<to>' });
  let toldAtMs = performance.now();
  const summary = await moveBlobs(from, to, {
    ...(options.remove === true ? { remove: true } : {}),
    signal: context.interruption(),
    onProgress: progress => {
      if (performance.now() - toldAtMs < PROGRESS_MS) return;
      toldAtMs = performance.now();
      context.progress(lineOf(progress));
    },
  });
  const { failures, ...counts } = summary;
  const failed = failures.slice(0, NAMED_MAX).map(({ name, error }) => ({
    name,
    reason: reasonOf(error),
  }));
  context.report({ ...counts, failures: failed }, () => [
    ...failed.map(({ name, reason }) => `FAIL  ${name}: ${reason}`),
    lineOf(summary),
  ]);
  if (!summary.complete) {
    throw new CommandError('some blobs were not copied; run the same command again');
  }
}

function lineOf({ copied, copiedBytes, alreadyThere, gone, removed }: MoveSummary): string {
  const megabytes = (copiedBytes / 1e6).toFixed(1);
  return (
    `${copied} copied (${megabytes} MB), ${alreadyThere} already there, ` +
    `${gone} removed by the service meanwhile, ${removed} removed from <from>`
  );
}

function reasonOf(error: unknown): string {
  const { message, cause } = error as Error;
  return error instanceof ContractError && cause instanceof Error
    ? `${message}: ${cause.message}`
    : message;
}

const MOVES_AT_ONCE_MAX = 8;
/** The list is read so often, since new blobs appear while a service writes to the first store. */
const PASSES_MAX = 10;
/** After this many failures the command tries no more blobs. */
const FAILURES_MAX = 20;
/** With this added to the clock, no blob is too young for the list. */
const AHEAD_MS = 86_400_000;
const UNFINISHED = /^(tmp|fallback:)/;

interface MoveOptions {
  /** Removes each blob from the first store once it is proven in the second. */
  readonly remove?: boolean;
  /** False: blobs that are there already are not compared. True if absent. */
  readonly prove?: boolean;
  readonly onProgress?: (progress: MoveSummary) => void;
  readonly signal?: AbortSignal;
}

interface MoveFailure {
  readonly name: string;
  readonly error: unknown;
}

export interface MoveSummary {
  readonly copied: number;
  readonly copiedBytes: number;
  /** Counts blobs that were in the second store before, with the same checksum. */
  readonly alreadyThere: number;
  /** Counts blobs that the service removed meanwhile. */
  readonly gone: number;
  readonly removed: number;
  /** Lists blobs whose copy failed or differs. */
  readonly failures: readonly MoveFailure[];
  readonly complete: boolean;
}

export class CopyDiffersError extends Error {
  constructor(name: string) {
    super(`${name} has other bytes at the destination`);
    this.name = 'CopyDiffersError';
  }
}

export type MovedFrom = Pick<BlobStore, 'listOlderThan' | 'openRead' | 'remove'>;

/**
 * Copies every blob of one store to another, while both are in use: nothing is replaced, each copy's
 * checksum is compared, and what is removed from the first was proven in the second before. A run
 * that was cut off is run again: what has moved is found there.
 *
 * Rejects where the list cannot be read; what fails of single blobs is in the summary.
 */
export async function moveBlobs(
  from: MovedFrom,
  to: BlobStore,
  options: MoveOptions = {},
): Promise<MoveSummary> {
  const move = new Move(from, to, options);
  for (let pass = 1; pass <= PASSES_MAX; pass += 1) {
    const copied = await move.pass(pass === 1 && options.prove !== false);
    if (copied === 0 || move.stopped) break;
  }
  return move.summary();
}

class Move {
  readonly #from: MovedFrom;
  readonly #to: BlobStore;
  readonly #options: MoveOptions;
  readonly #failures: MoveFailure[] = [];
  #counts = { copied: 0, copiedBytes: 0, alreadyThere: 0, gone: 0, removed: 0 };
  #lastPassCopied = 0;

  constructor(from: MovedFrom, to: BlobStore, options: MoveOptions) {
    this.#from = from;
    this.#to = to;
    this.#options = options;
  }

  get stopped(): boolean {
    return this.#options.signal?.aborted === true || this.#failures.length >= FAILURES_MAX;
  }

  summary(): MoveSummary {
    const complete = !this.stopped && this.#lastPassCopied === 0 && this.#failures.length === 0;
    return { ...this.#counts, failures: this.#failures, complete };
  }

  /**
   * Over all that is listed. @param prove compares also what is there already; without it only
   * what is missing is copied. @returns how many were copied
   */
  async pass(prove: boolean): Promise<number> {
    const before = this.#counts.copied;
    const names = this.#from.listOlderThan(-AHEAD_MS)[Symbol.asyncIterator]();
    const work = async () => {
      while (!this.stopped) {
        const next = await names.next();
        if (next.done) return;
        if (!UNFINISHED.test(next.value)) await this.#try(next.value, prove);
      }
    };
    try {
      await Promise.all(Array.from({ length: MOVES_AT_ONCE_MAX }, work));
    } finally {
      await names.return?.();
    }
    this.#lastPassCopied = this.#counts.copied - before;
    return this.#lastPassCopied;
  }

  async #try(name: string, prove: boolean): Promise<void> {
    try {
      await this.#move(name, prove || this.#options.remove === true);
    } catch (error) {
      if (error instanceof BlobNotFoundError) this.#counts.gone += 1;
      else if (this.#failures.every(failure => failure.name !== name)) {
        this.#failures.push({ name, error });
      }
    }
    this.#options.onProgress?.(this.summary());
  }

  async #move(name: string, prove: boolean): Promise<void> {
    const there = await this.#to.stat(name);
    if (there === undefined) await this.#copy(name);
    else if (prove) await this.#prove(name);
    if (this.#options.remove !== true) return;
    await this.#from.remove(name);
    this.#counts.removed += 1;
  }

  async #copy(name: string): Promise<void> {
    const stream = await this.#from.openRead(name);
    const writer = await this.#to.createWriter(name);
    const hash = createHash('sha256');
    try {
      for await (const piece of stream as AsyncIterable<Buffer>) {
        hash.update(piece);
        await writer.write(piece);
      }
      await writer.commit();
    } finally {
      stream.destroy();
      await writer.abort();
    }
    const { bytesWritten } = writer;
    await this.#requireSame(name, { bytes: bytesWritten, sha256: hash.digest('hex') });
    this.#counts.copied += 1;
    this.#counts.copiedBytes += bytesWritten;
  }

  async #prove(name: string): Promise<void> {
    await this.#requireSame(name, await hashOf(this.#from, name));
    this.#counts.alreadyThere += 1;
  }

  /** Asks the second store for its checksum if it has one; otherwise it reads the blob. */
  async #requireSame(name: string, expected: HashedBlob): Promise<void> {
    const said = await this.#to.stat(name);
    const { bytes, sha256 } =
      said?.sha256 === undefined
        ? await hashOf(this.#to, name)
        : { bytes: said.bytes, sha256: said.sha256 };
    if (bytes !== expected.bytes || sha256 !== expected.sha256) throw new CopyDiffersError(name);
  }
}
