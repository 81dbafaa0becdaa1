/**
 * Sends pictures to a service. A killed run can be repeated: finished pictures are skipped, nothing
 * is charged twice.
 */
import { createHash } from 'node:crypto';
import { mkdir } from 'node:fs/promises';
import { IMAGE_BYTES_MAX, MattingError, type Model, type Retry } from '../index.ts';
import { CANNOT_CREATE_EXIT_CODE, CommandError, misuse, USAGE_EXIT_CODE } from './command-error.ts';
import { withoutBytes } from './file-names.ts';
import { type Found, findPictures, type Picture } from './find-pictures.ts';
import { Journal, type JournalLine, NOTHING } from './journal.ts';
import { type RemoveOptions, STANDARD_INPUT } from './options.ts';
import { PartialFiles } from './partial-files.ts';
import { keyOf } from './picture-key.ts';
import { codeOf, type PictureEnd, runPicture } from './picture-run.ts';
import { Progress, shown } from './progress.ts';
import { stopsTheRun } from './stops-the-run.ts';
import { warnedOf } from './warnings.ts';

/** Longest wait for the service's first answer, before any picture is sent. */
const FIRST_ANSWER_MS_MAX = 10_000;
const DATA_EXIT_CODE = 65;
const UNAVAILABLE_EXIT_CODE = 69;
const NOT_ALLOWED_EXIT_CODE = 77;

const REMEDY_OF_NONE = '; use --recursive to include subfolders, or name the files';

export interface Endings {
  /** If aborted, no further picture is begun. */
  readonly draining: AbortSignal;
  /** If aborted, running pictures stop, too. */
  readonly hurrying: AbortSignal;
}

/** @throws CommandError, with exit code 1 if a picture failed */
export async function remove(options: RemoveOptions, endings: Endings): Promise<void> {
  const { to } = options;
  if (to === undefined) return removeStandardInput(options, endings);
  await makeFolder(to);
  const found = await findPictures(options.files, { ...options, to });
  const journal = await openJournal(to);
  try {
    if (found.pictures.length > 0) await requireService(options, found.pictures.length);
    else process.stderr.write(`matting: no pictures found${REMEDY_OF_NONE}\n`);
    const run = new Run({ ...options, to }, journal, found, endings);
    await run.all();
  } finally {
    await journal.close();
  }
}

/** @throws CommandError */
export async function makeFolder(to: string): Promise<void> {
  await mkdir(to, { recursive: true }).catch((error: NodeJS.ErrnoException) => {
    const detail = error.code === 'EEXIST' ? `--to ${to} is a file; name a folder` : error.message;
    throw new CommandError(detail, CANNOT_CREATE_EXIT_CODE);
  });
}

/** @throws CommandError */
export function openJournal(to: string, onLine?: (line: JournalLine) => void): Promise<Journal> {
  return Journal.open(to, onLine).catch((error: Error) => {
    throw new CommandError(error.message, CANNOT_CREATE_EXIT_CODE);
  });
}

/** Reports a wrong address, key or model at once instead of after an hour of retries. */
export async function requireService(
  { client, fields }: RemoveOptions,
  pictures: number,
): Promise<void> {
  const callOptions = { giveUpMs: FIRST_ANSWER_MS_MAX };
  try {
    const { credits } = await client.account(callOptions);
    if (fields.model !== undefined)
      requireOffered(fields.model, await client.listModels(callOptions));
    if (credits.available >= pictures) return;
    const has = `${credits.available} credits`;
    process.stderr.write(`matting: the account has ${has}; this run may need ${pictures}\n`);
  } catch (error) {
    if (!(error instanceof MattingError)) throw error;
    const refused = error.status === 401 || error.status === 403;
    const remedy = refused ? 'check the API key' : 'check --url, and that the service runs';
    throw new CommandError(
      `${error.code}: ${error.message}; ${remedy}`,
      refused ? NOT_ALLOWED_EXIT_CODE : UNAVAILABLE_EXIT_CODE,
    );
  }
}

/** If the list is empty, no node has reported its models yet, and the service decides. */
function requireOffered(model: string, offered: readonly Model[]): void {
  if (offered.length === 0 || offered.some(({ name }) => name === model)) return;
  const lines = offered.map(({ name, good_for: about }) => [name, about ?? []].flat().join(': '));
  throw misuse(
    [`the service does not offer the model ${model}; use one of these:`, ...lines].join('\n  '),
  );
}

class Run {
  readonly #options: RemoveOptions & { readonly to: string };
  readonly #journal: Journal;
  readonly #partials = new PartialFiles();
  readonly #found: Found;
  readonly #endings: Endings;
  readonly #progress: Progress;
  readonly #failed: string[] = [];
  readonly #jobs = new Set<string>();
  #next = 0;
  #made = 0;
  #skipped = 0;
  /** Results with warnings. */
  #warned = 0;
  /** Pictures that failed permanently. */
  #lost = 0;
  /** Why no further picture is begun. */
  #stopped: CommandError | undefined;

  constructor(
    options: RemoveOptions & { readonly to: string },
    journal: Journal,
    found: Found,
    endings: Endings,
  ) {
    this.#options = options;
    this.#journal = journal;
    this.#found = found;
    this.#endings = endings;
    this.#progress = new Progress(found.pictures.length, process.stderr);
  }

  async all(): Promise<void> {
    const { draining } = this.#endings;
    const onDrain = () => {
      const message = 'finishing the pictures in progress; press Ctrl-C again to end at once';
      this.#progress.line(message);
    };
    draining.addEventListener('abort', onDrain, { once: true });
    try {
      const workers = Math.min(this.#options.concurrency, this.#found.pictures.length);
      await Promise.all(Array.from({ length: workers }, () => this.#work()));
    } finally {
      draining.removeEventListener('abort', onDrain);
      this.#progress.stop();
    }
    await this.#tell();
  }

  async #work(): Promise<void> {
    while (this.#stopped === undefined && !this.#endings.draining.aborted) {
      const picture = this.#found.pictures[this.#next];
      if (picture === undefined) return;
      this.#next += 1;
      let isMade = false;
      try {
        const end = await this.#one(picture);
        isMade = end.kind === 'made';
        this.#count(picture, end);
      } catch (error) {
        // Aborted, or the journal cannot be written.
        if (this.#endings.hurrying.aborted) return;
        this.#stopped ??= new CommandError(`stopped: ${(error as Error).message}`);
        this.#failed.push(picture.source);
      }
      this.#progress.ended(picture.source, isMade);
    }
  }

  #one(picture: Picture): Promise<PictureEnd> {
    const onRetry = ({ error, waitMs }: Retry) => {
      this.#progress.note(
        `${picture.source}: ${error.code}, retrying in ${Math.ceil(waitMs / 1000)} s`,
      );
    };
    return runPicture(picture, {
      ...this.#options,
      journal: this.#journal,
      partials: this.#partials,
      signal: this.#endings.hurrying,
      onRetry,
    });
  }

  #count({ source }: Picture, end: PictureEnd): void {
    if (end.kind === 'made') {
      this.#made += 1;
      this.#jobs.add(end.job);
      if (end.warnings.length > 0) {
        this.#warned += 1;
        this.#progress.line(`${source}: ${warnedOf(end.warnings)}`);
      }
    } else if (end.kind === 'skipped') {
      this.#skipped += 1;
    } else {
      const { error } = end;
      this.#failed.push(source);
      if (error instanceof MattingError && !error.retryable) this.#lost += 1;
      const stops = stopsTheRun(error, this.#made > 0);
      // Pictures in flight fail for the same reason, which is printed once.
      if (stops && this.#stopped !== undefined) return;
      this.#progress.line(`${source}: ${codeOf(error)}: ${error.message}`);
      if (stops) this.#stopped = failureOf(error, 'stopped: ');
    }
  }

  async #tell(): Promise<void> {
    const { pictures, unreadable, others } = this.#found;
    for (const { source, reason } of unreadable) {
      this.#failed.push(source);
      const error = { code: 'UNREADABLE', detail: reason };
      await this.#journal.append({ ...NOTHING, file: withoutBytes(source), error });
      this.#progress.line(`${source}: ${reason}`);
    }
    const left =
      pictures.length + unreadable.length - this.#made - this.#skipped - this.#failed.length;
    const parts = [
      `${this.#made} cut out (${this.#jobs.size} jobs)`,
      ...(this.#warned > 0 ? [`${this.#warned} with warnings (results.jsonl)`] : []),
      ...(this.#skipped > 0 ? [`${this.#skipped} already there`] : []),
      ...(this.#failed.length > 0 ? [`${this.#failed.length} failed`] : []),
      ...(left > 0 ? [`${left} not tried`] : []),
      ...(others.count > 0 ? [`${namedOthers(others)} skipped`] : []),
    ];
    process.stdout.write(`matting: ${shown(parts.join(', '))}\n`);
    if (this.#stopped !== undefined) throw this.#stopped;
    if (left > 0) throw new CommandError('interrupted; run the same command again to resume');
    const failed = this.#failed.length;
    if (failed === 0) return;
    throw failedError(failed, this.#lost);
  }
}

/** @param lost permanent failures among them */
export function failedError(failed: number, lost: number): CommandError {
  const again = failed - lost;
  const which = again === failed ? 'them' : `${again} of them`;
  const retry = again > 0 ? `run the same command again to retry ${which}` : '';
  const rest = [lost > 0 ? `${lost} would fail again (results.jsonl says why)` : '', retry];
  return new CommandError(`${failed} failed; ${rest.filter(text => text !== '').join('; ')}`);
}

function namedOthers({ count, first }: Found['others']): string {
  const more = count > first.length ? ', …' : '';
  return `${count} other ${count === 1 ? 'file' : 'files'} (${first.join(', ')}${more})`;
}

/** An error of a request's field is a misuse of the command. */
export function failureOf(error: Error, before = ''): CommandError {
  const isMisuse = error instanceof MattingError && error.fieldErrors.length > 0;
  const message = `${before}${codeOf(error)}: ${error.message}`;
  return new CommandError(message, isMisuse ? USAGE_EXIT_CODE : 1);
}

/** Writes the result only when it is complete. */
async function removeStandardInput(options: RemoveOptions, endings: Endings): Promise<void> {
  if (process.stdin.isTTY)
    throw misuse(`standard input is a terminal; pipe a picture into ${STANDARD_INPUT}`);
  if (process.stdout.isTTY) throw misuse(`standard output is a terminal; redirect it to a file`);
  const image = await readStandardInput();
  const { client, fields, giveUpMs } = options;
  const idempotencyKey = keyOf(createHash('sha256').update(image).digest('hex'), options);
  const call = { idempotencyKey, giveUpMs, signal: endings.draining };
  const made = await client.cutOut({ image, ...fields }, call).catch((error: unknown) => {
    if (!(error instanceof MattingError)) throw error;
    throw failureOf(error);
  });
  const { bytes, warnings } = made;
  if (warnings.length > 0) process.stderr.write(`matting: ${warnedOf(warnings)}\n`);
  await new Promise<void>((resolve, reject) => {
    process.stdout.once('error', reject);
    process.stdout.write(bytes, error => (error ? reject(error) : resolve()));
  }).catch((error: Error) => {
    throw new CommandError(`cannot write standard output: ${error.message}`);
  });
}

async function readStandardInput(): Promise<Uint8Array> {
  const pieces: Buffer[] = [];
  let bytes = 0;
  for await (const piece of process.stdin) {
    pieces.push(piece as Buffer);
    bytes += (piece as Buffer).length;
    if (bytes > IMAGE_BYTES_MAX)
      throw new CommandError(
        'the picture is larger than 50 MB; send a smaller one',
        DATA_EXIT_CODE,
      );
  }
  if (bytes === 0)
    throw new CommandError('standard input is empty; pipe a picture into it', DATA_EXIT_CODE);
  return Buffer.concat(pieces);
}
