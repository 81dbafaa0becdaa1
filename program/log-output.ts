/**
 * Where a program's log lines go: a file descriptor. A log never stops the program that writes it.
 * Lines that cannot be written, because the disk is full or the reader is gone, are lost and
 * counted, and a line says how many once one can be written again; a reader that is slow is waited
 * for with a bounded buffer, beyond which lines are lost too. (The stream that pino brings tries
 * for ever to write a fatal line to a full disk, on the main thread: a program that has to end
 * stands still with its ports open.)
 */
import { write, writeSync } from 'node:fs';

/** The longest a line waits for others; what a SIGKILL can lose. */
const FLUSH_MS = 100;
/** Seconds of a busy program's lines. */
const BUFFER_BYTES_MAX = 4 * 1024 * 1024;
/** How long last words wait for a pipe that is full. */
const FULL_PIPE_TRIES_MAX = 10;
const FULL_PIPE_WAIT_MS = 20;
const WARN = 40;
const LINE_FEED = 10;

export interface LogOutputOptions {
  readonly fd: number;
  /**
   * Lines are written together, off the main thread, from this many bytes on; fewer wait 100 ms for
   * others. 0: each is written at once, on the main thread.
   */
  readonly batchBytes: number;
  readonly bufferBytesMax?: number;
  /** What every line holds, for the one that tells of lost lines. */
  readonly base: Readonly<Record<string, unknown>>;
}

interface Batch {
  readonly bytes: Buffer;
  readonly lines: number;
  /** Lost lines that its first line reports; 0 where it reports none. */
  readonly tellsOf: number;
  written: number;
}

/** The stream pino writes to: `write`, `flush` and `flushSync` are what it calls. */
export class LogOutput {
  readonly #options: Required<LogOutputOptions>;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #batch: Batch | undefined;
  /** The system has the batch. */
  #underWay = false;
  #lost = 0;
  /** A line was cut off in its middle. */
  #torn = false;
  readonly #flushed: (() => void)[] = [];

  constructor(options: LogOutputOptions) {
    this.#options = { bufferBytesMax: BUFFER_BYTES_MAX, ...options };
    setInterval(() => this.#start(), FLUSH_MS).unref();
    process.once('exit', () => this.flushSync());
  }

  /** @param line one, with its line feed. */
  write(line: string): void {
    const { batchBytes, bufferBytesMax } = this.#options;
    if (this.#waitingBytes >= bufferBytesMax) {
      this.#lost += 1;
      return;
    }
    this.#waiting.push(line);
    this.#waitingBytes += Buffer.byteLength(line);
    if (batchBytes === 0) this.#writeNow(1);
    else if (this.#waitingBytes >= batchBytes) this.#start();
  }

  /** @param done called when the lines that are here now are written, or lost. */
  flush(done?: () => void): void {
    if (done !== undefined) this.#flushed.push(done);
    this.#start();
  }

  /** Last words, on this thread: what cannot be written within 0.2 s is given up. */
  flushSync(): void {
    this.#writeNow(FULL_PIPE_TRIES_MAX);
  }

  #start(): void {
    if (this.#underWay) return;
    this.#batch ??= this.#take();
    if (this.#batch === undefined) {
      for (const done of this.#flushed.splice(0)) done();
      return;
    }
    this.#underWay = true;
    const { bytes, written } = this.#batch;
    write(this.#options.fd, bytes, written, (error, count) => this.#ended(error, count ?? 0));
  }

  #ended(error: NodeJS.ErrnoException | null, count: number): void {
    this.#underWay = false;
    const batch = this.#batch as Batch;
    batch.written += count;
    // The next tick of the interval tries again.
    if (error !== null && isBusy(error)) return;
    if (error !== null) this.#lose(batch);
    if (error !== null || batch.written === batch.bytes.length) this.#batch = undefined;
    const more = this.#batch !== undefined || this.#flushed.length > 0;
    if (more || this.#waitingBytes >= this.#options.batchBytes) this.#start();
  }

  #writeNow(triesMax: number): void {
    for (;;) {
      // What the system has will be written by it: only the rest is ours.
      const batch = this.#underWay ? this.#take() : (this.#batch ?? this.#take());
      if (batch === undefined) return;
      const outcome = this.#writeBatch(batch, triesMax);
      if (outcome === 'lost') this.#lose(batch);
      if (!this.#underWay) this.#batch = outcome === 'busy' ? batch : undefined;
      if (outcome !== 'written') return;
    }
  }

  #writeBatch(batch: Batch, triesMax: number): 'written' | 'busy' | 'lost' {
    for (let tries = 0; batch.written < batch.bytes.length; ) {
      try {
        batch.written += writeSync(this.#options.fd, batch.bytes, batch.written);
      } catch (error) {
        if (!isBusy(error)) return 'lost';
        tries += 1;
        if (tries >= triesMax) return this.#underWay ? 'lost' : 'busy';
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, FULL_PIPE_WAIT_MS);
      }
    }
    return 'written';
  }

  #take(): Batch | undefined {
    if (this.#waiting.length === 0) return undefined;
    const lines = this.#waiting.length;
    const tellsOf = this.#lost;
    const bytes = Buffer.from(this.#lossLine() + this.#waiting.join(''));
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#lost = 0;
    return { bytes, lines, tellsOf, written: 0 };
  }

  #lossLine(): string {
    if (this.#lost === 0) return '';
    const { base } = this.#options;
    const time = new Date().toISOString();
    const msg = 'log lines could not be written';
    const line = JSON.stringify({ level: WARN, time, ...base, lines: this.#lost, msg });
    return `${this.#torn ? '\n' : ''}${line}\n`;
  }

  #lose({ bytes, lines, tellsOf, written }: Batch): void {
    if (written === 0) {
      this.#lost += tellsOf + lines;
      return;
    }
    for (const byte of bytes.subarray(written)) if (byte === LINE_FEED) this.#lost += 1;
    this.#torn = bytes[written - 1] !== LINE_FEED;
  }
}

function isBusy(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'EAGAIN';
}
