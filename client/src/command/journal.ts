/**
 * results.jsonl: a line for each tried picture, for people, programs and the next run, which skips
 * finished ones.
 */
import { createReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { ResultWarning, Subject } from '../index.ts';

export const JOURNAL_NAME = 'results.jsonl';
/** The last newline must be within this many bytes of the end. A line has about 500 bytes. */
const LINE_BYTES_MAX = 64 * 1024;

export interface JournalLine {
  /** The path as found. */
  readonly file: string;
  /** The hash of the file, hexadecimal. null: the file was unreadable. */
  readonly sha256: string | null;
  /** The Idempotency-Key: a hash of the file and the fields. */
  readonly key: string | null;
  readonly job: string | null;
  /** The result's path relative to the journal. null: no result. */
  readonly output: string | null;
  /** Of the result. */
  readonly size: {
    readonly bytes: number;
    readonly width: number;
    readonly height: number;
  } | null;
  /** In pixels of the file. null: no subject, or not reported. */
  readonly subject: Subject | null;
  readonly warnings: readonly ResultWarning[];
  /** Lines with the same job share one charge. */
  readonly credits: number;
  /** `retryable`: the same request may succeed later. */
  readonly error: {
    readonly code: string;
    readonly detail: string;
    readonly retryable?: boolean;
  } | null;
}

/** A line that is filled in while its picture is processed. */
export type OpenLine = { -readonly [Field in keyof JournalLine]: JournalLine[Field] };

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

/** The last result under each name. */
type DoneByOutput = ReadonlyMap<string, { readonly key: string; readonly bytes: number }>;

export class Journal {
  readonly #file: FileHandle;
  readonly #done: DoneByOutput;
  /** A write failed, possibly within a line. */
  #isCut = false;

  private constructor(file: FileHandle, done: DoneByOutput) {
    this.#file = file;
    this.#done = done;
  }

  /** Rejects with system errors. @param onLine gets each line of earlier runs */
  static async open(folder: string, onLine?: (line: JournalLine) => void): Promise<Journal> {
    const journalFile = path.join(folder, JOURNAL_NAME);
    const file = await open(journalFile, 'a+');
    await mendLastLine(file);
    return new Journal(file, await readDone(journalFile, onLine));
  }

  /** Size of a result that an earlier run made with the same key. */
  bytesOfDone(output: string, key: string): number | undefined {
    const done = this.#done.get(output);
    return done?.key === key ? done.bytes : undefined;
  }

  /** A single write, so that lines of concurrent runs stay whole. */
  async append(...lines: readonly JournalLine[]): Promise<void> {
    if (this.#isCut) await mendLastLine(this.#file);
    this.#isCut = false;
    const text = lines.map(line => `${JSON.stringify(line)}\n`).join('');
    await this.#file.appendFile(text).catch((error: unknown) => {
      this.#isCut = true;
      throw error;
    });
  }

  sync(): Promise<void> {
    return this.#file.datasync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/**
 * Removes the beginning of a line that a full disk or a kill left. Completes a line without its
 * newline, which another program may have written.
 */
async function mendLastLine(file: FileHandle): Promise<void> {
  const { size } = await file.stat();
  const from = Math.max(0, size - LINE_BYTES_MAX);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from);
  const end = buffer.subarray(0, bytesRead).lastIndexOf('\n') + 1;
  if (from + end === size) return;
  if (parseLine(buffer.toString('utf8', end, bytesRead)) !== undefined) await file.appendFile('\n');
  // A file without a newline in so many bytes is not ours and is not changed.
  else if (end > 0 || from === 0) await file.truncate(from + end);
}

async function readDone(
  journalFile: string,
  onLine?: (line: JournalLine) => void,
): Promise<DoneByOutput> {
  const done = new Map<string, { key: string; bytes: number }>();
  const lines = createInterface({ input: createReadStream(journalFile), crlfDelay: Infinity });
  for await (const text of lines) {
    const line = parseLine(text);
    if (line) onLine?.(line);
    if (line?.output && line.key && line.size) {
      done.set(line.output, { key: line.key, bytes: line.size.bytes });
    }
  }
  return done;
}

/** undefined: the line is not ours. Its picture is then processed again, without another charge. */
function parseLine(text: string): JournalLine | undefined {
  try {
    return JSON.parse(text) as JournalLine;
  } catch {
    return undefined;
  }
}
