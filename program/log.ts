/** Writes JSON lines to stdout. They never contain secrets, URLs or bytes. */

import { write, writeSync } from 'node:fs';
import { type Logger, type LoggerOptions, pino } from 'pino';
import type { EnvReader } from './env.ts';
import { traceFields } from './tracing/active-span.ts';

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
type LogLevel = (typeof LOG_LEVELS)[number];

const STDOUT = 1;
/** The log writes every line of at least this level. */
const ERROR = 50;

interface LogOptions {
  readonly level: LogLevel;
  readonly batchBytes: number;
  readonly base: Readonly<Record<string, string>>;
  /** Adds the trace id to lines. */
  readonly traced?: boolean;
}

export function createLog(options: LogOptions): Logger {
  const { level, batchBytes, base, traced = false } = options;
  const repeats = new RepeatedFailures();
  const log = pino(
    {
      level,
      base,
      timestamp: pino.stdTimeFunctions.isoTime,
      ...(traced && { mixin: () => traceFields() ?? {} }),
      hooks: hooksOf(repeats),
    },
    new LogOutput({ fd: STDOUT, batchBytes, base }),
  );
  repeats.reportEveryMinute(leftOut => log.warn({ ...leftOut }, 'log lines were left out'));
  return log;
}

/** Decides before a line is formatted, so that an omitted line costs little. */
function hooksOf(repeats: RepeatedFailures): NonNullable<LoggerOptions['hooks']> {
  return {
    logMethod(args, method, level) {
      const [first, second] = args as unknown[];
      const message = typeof first === 'string' ? first : second;
      const { err } = Object(first) as { err?: unknown };
      const isFailure = level < ERROR && typeof message === 'string' && err instanceof Error;
      if (!isFailure || repeats.keeps(message, err)) method.apply(this, args);
    },
  };
}

export interface LogSettings {
  readonly logLevel: LogLevel;
}

export function readLogSettings(whole: EnvReader): LogSettings {
  return {
    logLevel: whole.section('Log').oneOf('MATTING_LOG_LEVEL', LOG_LEVELS, {
      about: 'The program writes lines of this level and above.',
      default: 'info',
    }),
  };
}

const REPORT_EVERY_MS = 60_000;
/** Remembered pairs of message and cause. Beyond it no line is omitted. */
const MESSAGES_MAX = 512;

interface Seen {
  readonly of: string;
  readonly cause: string;
  readonly firstMs: number;
  leftOut: number;
}

interface LeftOut extends Pick<Seen, 'of' | 'cause'> {
  readonly lines: number;
}

/**
 * Omits repeated lines with `err` below level error, except the first of each message and cause,
 * until a minute passes without one.
 */
export class RepeatedFailures {
  readonly #now: () => number;
  readonly #seen = new Map<string, Seen>();

  /** @param now monotonic milliseconds */
  constructor(now: () => number = () => performance.now()) {
    this.#now = now;
  }

  keeps(message: string, err: Error): boolean {
    const cause = causeOf(err);
    const key = `${message}\n${cause}`;
    const seen = this.#seen.get(key);
    if (seen !== undefined) seen.leftOut += 1;
    else if (this.#seen.size < MESSAGES_MAX) {
      this.#seen.set(key, { of: message, cause, firstMs: this.#now(), leftOut: 0 });
    }
    return seen === undefined;
  }

  takeLeftOut(): LeftOut[] {
    const leftOut: LeftOut[] = [];
    for (const [key, seen] of this.#seen) {
      const { of, cause, leftOut: lines } = seen;
      if (lines > 0) leftOut.push({ of, cause, lines });
      else if (this.#now() - seen.firstMs >= REPORT_EVERY_MS) this.#seen.delete(key);
      seen.leftOut = 0;
    }
    return leftOut;
  }

  /** Reports omitted lines once a minute and at the end. */
  reportEveryMinute(report: (leftOut: LeftOut) => void): void {
    const reportAll = () => this.takeLeftOut().forEach(report);
    setInterval(reportAll, REPORT_EVERY_MS).unref();
    // This listener must precede the log's own, which writes the last lines.
    process.prependOnceListener('exit', reportAll);
  }
}

/** An error may be its own cause. */
const CAUSES_MAX = 8;
const CAUSE_CHARACTERS_MAX = 200;

/** The code of the innermost cause, or the beginning of its message. */
function causeOf(error: Error): string {
  let innermost = error;
  for (let depth = 0; depth < CAUSES_MAX && innermost.cause instanceof Error; depth += 1) {
    innermost = innermost.cause;
  }
  const { code, message } = innermost as { code?: unknown; message: unknown };
  return (typeof code === 'string' ? code : String(message)).slice(0, CAUSE_CHARACTERS_MAX);
}

/** Longest wait of a line for its batch. A SIGKILL loses the waiting lines. */
const FLUSH_MS = 100;
/** Some seconds of a busy program's lines. */
const BUFFER_BYTES_MAX = 4 * 1024 * 1024;
/** Bounds the last write to a full pipe. */
const FULL_PIPE_TRIES_MAX = 10;
const FULL_PIPE_WAIT_MS = 20;
const WARN = 40;
const LINE_FEED = 10;

interface LogOutputOptions {
  readonly fd: number;
  /**
   * From this many bytes on the system writes lines together, off the main thread; fewer bytes wait
   * 100 ms for more. 0: the main thread writes each line at once.
   */
  readonly batchBytes: number;
  readonly bufferBytesMax?: number;
  /** Fields of the line that reports lost lines. */
  readonly base: Readonly<Record<string, unknown>>;
}

interface Batch {
  readonly bytes: Buffer;
  readonly lines: number;
  /** Lost lines that the first line reports. */
  readonly reportedLosses: number;
  written: number;
}

/**
 * Writes lines to a file descriptor without ever stopping the program. On a full disk or without a
 * reader lines are lost, and a later line reports their number. Pino's own stream retries forever
 * on a full disk.
 */
export class LogOutput {
  readonly #options: Required<LogOutputOptions>;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #batch: Batch | undefined;
  #isWriting = false;
  #lost = 0;
  #torn = false;
  /** The timer runs only while lines wait: each tick wakes an idle process. */
  #ticking: NodeJS.Timeout | undefined;
  readonly #flushed: (() => void)[] = [];

  constructor(options: LogOutputOptions) {
    this.#options = { bufferBytesMax: BUFFER_BYTES_MAX, ...options };
    process.once('exit', () => this.flushSync());
  }

  /** @param line ends with a line feed */
  write(line: string): void {
    const { batchBytes, bufferBytesMax } = this.#options;
    if (this.#waitingBytes >= bufferBytesMax) {
      this.#lost += 1;
      return;
    }
    this.#waiting.push(line);
    this.#waitingBytes += Buffer.byteLength(line);
    this.#ticking ??= setInterval(() => this.#tick(), FLUSH_MS).unref();
    if (batchBytes === 0) this.#writeNow(1);
    else if (this.#waitingBytes >= batchBytes) this.#start();
  }

  /** @param done called when the current lines are written or lost */
  flush(done?: () => void): void {
    if (done !== undefined) this.#flushed.push(done);
    this.#start();
  }

  /** Writes on this thread and gives up after 0.2 s. */
  flushSync(): void {
    this.#writeNow(FULL_PIPE_TRIES_MAX);
  }

  #tick(): void {
    this.#start();
    if (this.#batch !== undefined || this.#waitingBytes > 0) return;
    clearInterval(this.#ticking);
    this.#ticking = undefined;
  }

  #start(): void {
    if (this.#isWriting) return;
    this.#batch ??= this.#take();
    if (this.#batch === undefined) {
      for (const done of this.#flushed.splice(0)) done();
      return;
    }
    this.#isWriting = true;
    const { bytes, written } = this.#batch;
    write(this.#options.fd, bytes, written, (error, count) => this.#ended(error, count ?? 0));
  }

  #ended(error: NodeJS.ErrnoException | null, count: number): void {
    this.#isWriting = false;
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
      // While the system writes a batch, this writes only later lines.
      const batch = this.#isWriting ? this.#take() : (this.#batch ?? this.#take());
      if (batch === undefined) return;
      const outcome = this.#writeBatch(batch, triesMax);
      if (outcome === 'lost') this.#lose(batch);
      if (!this.#isWriting) this.#batch = outcome === 'busy' ? batch : undefined;
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
        if (tries >= triesMax) return this.#isWriting ? 'lost' : 'busy';
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, FULL_PIPE_WAIT_MS);
      }
    }
    return 'written';
  }

  #take(): Batch | undefined {
    if (this.#waiting.length === 0) return undefined;
    const lines = this.#waiting.length;
    const reportedLosses = this.#lost;
    const bytes = Buffer.from(this.#lossLine() + this.#waiting.join(''));
    this.#waiting = [];
    this.#waitingBytes = 0;
    this.#lost = 0;
    return { bytes, lines, reportedLosses, written: 0 };
  }

  #lossLine(): string {
    if (this.#lost === 0) return '';
    const { base } = this.#options;
    const time = new Date().toISOString();
    const msg = 'log lines could not be written';
    const line = JSON.stringify({ level: WARN, time, ...base, lines: this.#lost, msg });
    return `${this.#torn ? '\n' : ''}${line}\n`;
  }

  #lose({ bytes, lines, reportedLosses, written }: Batch): void {
    if (written === 0) {
      this.#lost += reportedLosses + lines;
      return;
    }
    for (const byte of bytes.subarray(written)) if (byte === LINE_FEED) this.#lost += 1;
    this.#torn = bytes[written - 1] !== LINE_FEED;
  }
}

function isBusy(error: unknown): boolean {
  return (error as NodeJS.ErrnoException).code === 'EAGAIN';
}
