/**
 * results.jsonl has a line for each picture that was tried. Lines are whole however the run ends.
 * People and programs read it, and the next run skips the pictures that are done.
 */
import { createReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { ResultWarning, Subject } from '../index.ts';

export const JOURNAL_NAME = 'results.jsonl';
/**
 * A last newline within this many bytes of the end shows that the file is a journal. A line has
 * some 500.
 */
const LINE_BYTES_MAX = 64 * 1024;

export interface JournalLine {
  /** The path at which the command found the picture. */
  readonly file: string;
  /** SHA-256 of the file, hexadecimal; null if it could not be read. */
  readonly sha256: string | null;
  /** The Idempotency-Key: a hash of the file and of the options. */
  readonly key: string | null;
  readonly job: string | null;
  /** Relative to the journal; null if there is no result. */
  readonly output: string | null;
  /** The size of the result. */
  readonly size: {
    readonly bytes: number;
    readonly width: number;
    readonly height: number;
  } | null;
  /** In pixels of the file. null: the models saw no subject, or the service does not know. */
  readonly subject: Subject | null;
  readonly warnings: readonly ResultWarning[];
  /** The cost of the job. If several lines have the same job, it is charged once. */
  readonly credits: number;
  /** `retryable`: the service's answer whether the same request may succeed later. */
  readonly error: {
    readonly code: string;
    readonly detail: string;
    readonly retryable?: boolean;
  } | null;
}

/** A line that the command fills in while it processes the picture. */
export type OpenLine = { -readonly [Field in keyof JournalLine]: JournalLine[Field] };

/** The line of a picture before any step. */
export const NOTHING: Omit<JournalLine, 'file'> = {
  sha256: null,
  key: null,
  job: null,
  output: null,
  size: null,
  subject: null,
  warnings: [],
  credits: 0,
  error: null,
};

/** By output: key and size of the latest result. */
type DoneByOutput = ReadonlyMap<string, { readonly key: string; readonly bytes: number }>;

export class Journal {
  readonly #file: FileHandle;
  readonly #done: DoneByOutput;
  /** A write failed, perhaps in the middle of a line. */
  #isCut = false;

  private constructor(file: FileHandle, done: DoneByOutput) {
    this.#file = file;
    this.#done = done;
  }

  /** Rejects with the system's errors. @param onLine is called with each line of earlier runs */
  static async open(folder: string, onLine?: (line: JournalLine) => void): Promise<Journal> {
    const place = path.join(folder, JOURNAL_NAME);
    const file = await open(place, 'a+');
    await mendLastLine(file);
    return new Journal(file, await readDone(place, onLine));
  }

  /** Size of the result, if an earlier run made it from the same bytes with the same options. */
  bytesOfDone(output: string, key: string): number | undefined {
    const done = this.#done.get(output);
    return done?.key === key ? done.bytes : undefined;
  }

  /** Writes all lines at once, so that lines of other processes stay whole. */
  async append(...lines: readonly JournalLine[]): Promise<void> {
    if (this.#isCut) await mendLastLine(this.#file);
    this.#isCut = false;
    const text = lines.map(line => `${JSON.stringify(line)}\n`).join('');
    await this.#file.appendFile(text).catch((error: unknown) => {
      this.#isCut = true;
      throw error;
    });
  }

  /** Makes appended lines durable. */
  sync(): Promise<void> {
    return this.#file.datasync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/**
 * A full disk, or a kill in the middle of a write, may have left the beginning of a line. A whole
 * line without its newline stays: another program may have written it.
 */
async function mendLastLine(file: FileHandle): Promise<void> {
  const { size } = await file.stat();
  const from = Math.max(0, size - LINE_BYTES_MAX);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from);
  const end = buffer.subarray(0, bytesRead).lastIndexOf('\n') + 1;
  if (from + end === size) return;
  if (parseLine(buffer.toString('utf8', end, bytesRead)) !== undefined) await file.appendFile('\n');
  // A file without a newline in so many bytes is not a journal, so this leaves it unchanged.
  else if (end > 0 || from === 0) await file.truncate(from + end);
}

async function readDone(
  place: string,
  onLine?: (line: JournalLine) => void,
): Promise<DoneByOutput> {
  const done = new Map<string, { key: string; bytes: number }>();
  const lines = createInterface({ input: createReadStream(place), crlfDelay: Infinity });
  for await (const text of lines) {
    const line = parseLine(text);
    if (line) onLine?.(line);
    if (line?.output && line.key && line.size) {
      done.set(line.output, { key: line.key, bytes: line.size.bytes });
    }
  }
  return done;
}

/** Undefined: not a line of ours. Its picture is then made again, or joins its job. */
function parseLine(text: string): JournalLine | undefined {
  try {
    return JSON.parse(text) as JournalLine;
  } catch {
    return undefined;
  }
}
