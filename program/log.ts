/** A program's log: JSON lines on stdout, one an event. Secrets, URLs and bytes never come here. */

import { write, writeSync } from 'node:fs';
import { type Logger, type LoggerOptions, pino } from 'pino';
import type { EnvReader } from './env.ts';
import { traceFields } from './tracing/active-span.ts';

const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
type LogLevel = (typeof LOG_LEVELS)[number];

const STDOUT = 1;
/** The log writes every line from this level on. */
const ERROR = 50;

interface LogOptions {
  readonly level: LogLevel;
  readonly batchBytes: number;
  /** Fields of every line: which program it is, and which of several. */
  readonly base: Readonly<Record<string, string>>;
  /** Lines name the trace that they are written under. */
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
  repeats.tellEveryMinute(leftOut => log.warn({ ...leftOut }, 'log lines were left out'));
  return log;
}

/** Asks before a line is made, so that one that is left out costs next to nothing. */
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

const TELL_EVERY_MS = 60_000;
/** Messages are a fixed set but for a few that are put together; more are never left out. */
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
 * Leaves out failures that repeat: lines with `err`, below errors. The first of each message and
 * cause is written, until a minute passes without one. The others are counted, and said once a
 * minute and at the end.
 */
export class RepeatedFailures {
  readonly #now: () => number;
  readonly #seen = new Map<string, Seen>();

  /** @param now milliseconds of a clock that never goes back */
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
      // One that comes first just before is not forgotten at once.
      else if (this.#now() - seen.firstMs >= TELL_EVERY_MS) this.#seen.delete(key);
      seen.leftOut = 0;
    }
    return leftOut;
  }

  /** Calls `tell` for each message of which lines were left out, once a minute and at the end. */
  tellEveryMinute(tell: (leftOut: LeftOut) => void): void {
    const tellAll = () => this.takeLeftOut().forEach(tell);
    setInterval(tellAll, TELL_EVERY_MS).unref();
    // Before the log's own listener, which writes the last lines.
    process.prependOnceListener('exit', tellAll);
  }
}

/** An error that is its own cause has no end. */
const CAUSES_MAX = 8;
const CAUSE_CHARACTERS_MAX = 200;

/** The code of the innermost cause of an error, or else the beginning of its message. */
function causeOf(error: Error): string {
  let innermost = error;
  for (let depth = 0; depth < CAUSES_MAX && innermost.cause instanceof Error; depth += 1) {
    innermost = innermost.cause;
  }
  const { code, message } = innermost as { code?: unknown; message: unknown };
  return (typeof code === 'string' ? code : String(message)).slice(0, CAUSE_CHARACTERS_MAX);
}

/** The longest a line waits for others; what a SIGKILL can lose. */
const FLUSH_MS = 100;
/** Seconds of a busy program's lines. */
const BUFFER_BYTES_MAX = 4 * 1024 * 1024;
/** How long last words wait for a pipe that is full. */
const FULL_PIPE_TRIES_MAX = 10;
const FULL_PIPE_WAIT_MS = 20;
const WARN = 40;
const LINE_FEED = 10;

interface LogOutputOptions {
  readonly fd: number;
  /**
   * Lines are written together, off the main thread, from this many bytes on; fewer wait 100 ms for
   * others. 0: each is written at once, on the main thread.
   */
  readonly batchBytes: number;
  readonly bufferBytesMax?: number;
  /** The fields of every line, for the line about lost ones. */
  readonly base: Readonly<Record<string, unknown>>;
}

interface Batch {
  readonly bytes: Buffer;
  readonly lines: number;
  /** Lost lines that its first line reports; 0 where it reports none. */
  readonly tellsOf: number;
  written: number;
}

/**
 * Writes log lines to a file descriptor. A log never stops the program that writes it. Lines that
 * cannot be written, because the disk is full or the reader is gone, are lost and counted, and a
 * line says how many once one can be written again; a reader that is slow is waited for with a
 * bounded buffer, beyond which lines are lost too. `write`, `flush` and
 * `flushSync` are what pino calls. (Pino's own stream tries for ever to write to a full disk.)
 */
export class LogOutput {
  readonly #options: Required<LogOutputOptions>;
  #waiting: string[] = [];
  #waitingBytes = 0;
  #batch: Batch | undefined;
  /** The system has the batch. */
  #underWay = false;
  #lost = 0;
  #torn = false;
  /** Ticks only while something waits: each tick wakes a program at rest. */
  #ticking: NodeJS.Timeout | undefined;
  readonly #flushed: (() => void)[] = [];

  constructor(options: LogOutputOptions) {
    this.#options = { bufferBytesMax: BUFFER_BYTES_MAX, ...options };
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
    this.#ticking ??= setInterval(() => this.#tick(), FLUSH_MS).unref();
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

  #tick(): void {
    this.#start();
    if (this.#batch !== undefined || this.#waitingBytes > 0) return;
    clearInterval(this.#ticking);
    this.#ticking = undefined;
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
      // The system writes what it already has. Only the rest is ours.
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
