/**
 * results.jsonl: a line for each picture that was tried, in whole lines however the run ends. It is
 * for people and programs, and for the next run, which leaves alone what is done.
 */
import { createReadStream } from 'node:fs';
import { type FileHandle, open } from 'node:fs/promises';
import path from 'node:path';
import { createInterface } from 'node:readline';
import type { ResultWarning, Subject } from '../index.ts';

export const JOURNAL_NAME = 'results.jsonl';
/** The last newline must be within so many bytes of the end. A line has some 500. */
const LINE_BYTES_MAX = 64 * 1024;

export interface JournalLine {
  /** The path at which the command found the picture. */
  readonly file: string;
  /** SHA-256 of the file, hexadecimal; null where it could not be read. */
  readonly sha256: string | null;
  /** The Idempotency-Key: the file's hash with what was asked for. */
  readonly key: string | null;
  readonly job: string | null;
  /** Relative to the journal; null where there is none. */
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
  /** The cost of the job. Lines with the same job name the same charge. */
  readonly credits: number;
  /** `retryable`: the service says whether the same may succeed later. */
  readonly error: {
    readonly code: string;
    readonly detail: string;
    readonly retryable?: boolean;
  } | null;
}

/** A line that is filled in while its picture goes on. */
export type OpenLine = { -readonly [Field in keyof JournalLine]: JournalLine[Field] };

/** The line of a picture that nothing is known of yet. */
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

/** The key and the size of what was written last under a name. */
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

  /** The bytes of a result that an earlier run made of the same with the same. */
  bytesOfDone(output: string, key: string): number | undefined {
    const done = this.#done.get(output);
    return done?.key === key ? done.bytes : undefined;
  }

  /** One write for the lines: others' stay whole beside them. */
  async append(...lines: readonly JournalLine[]): Promise<void> {
    if (this.#isCut) await mendLastLine(this.#file);
    this.#isCut = false;
    const text = lines.map(line => `${JSON.stringify(line)}\n`).join('');
    await this.#file.appendFile(text).catch((error: unknown) => {
      this.#isCut = true;
      throw error;
    });
  }

  /** Appended lines stay, even if the machine stops. */
  sync(): Promise<void> {
    return this.#file.datasync();
  }

  close(): Promise<void> {
    return this.#file.close();
  }
}

/**
 * A full disk, or a kill in the middle of a write, may have left the beginning of a line. A whole
 * one without its newline stays: it may be of another program.
 */
async function mendLastLine(file: FileHandle): Promise<void> {
  const { size } = await file.stat();
  const from = Math.max(0, size - LINE_BYTES_MAX);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(size - from), 0, size - from, from);
  const end = buffer.subarray(0, bytesRead).lastIndexOf('\n') + 1;
  if (from + end === size) return;
  if (parseLine(buffer.toString('utf8', end, bytesRead)) !== undefined) await file.appendFile('\n');
  // A file without a newline in so many bytes is not our journal, so nothing changes it.
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

/** Undefined for what is no line of ours: a picture is then made again, or joined. */
function parseLine(text: string): JournalLine | undefined {
  try {
    return JSON.parse(text) as JournalLine;
  } catch {
    return undefined;
  }
}
