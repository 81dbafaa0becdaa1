/** A program's log: JSON lines on stdout, one an event. Secrets, URLs and bytes never come here. */
import { type Logger, type LoggerOptions, pino } from 'pino';
import { LogOutput } from './log-output.ts';
import { LogSampler, type LogSampling } from './log-sampling.ts';
import { traceFields } from './tracing/active-span.ts';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const STDOUT = 1;
/** From here on every line is written. */
const ERROR = 50;
/** Itself left out it would take the count of a message with it; there is one a minute for each. */
const LEFT_OUT = 'log lines were left out';

export interface LogOptions {
  readonly level: LogLevel;
  /** As LogOutputOptions. */
  readonly batchBytes: number;
  /** Fields of every line: which program it is, and which of several. */
  readonly base: Readonly<Record<string, string>>;
  /** Lines name the trace that they are written under. */
  readonly traced?: boolean;
  /** Every line is written where absent. */
  readonly sampling?: LogSampling | undefined;
}

export function createLog(options: LogOptions): Logger {
  const { level, batchBytes, base, traced = false, sampling } = options;
  const sampler = sampling && new LogSampler(sampling);
  const log = pino(
    {
      level,
      base,
      timestamp: pino.stdTimeFunctions.isoTime,
      ...(traced && { mixin: () => traceFields() ?? {} }),
      ...(sampler && { hooks: hooksOf(sampler) }),
    },
    new LogOutput({ fd: STDOUT, batchBytes, base }),
  );
  sampler?.tellEveryMinute(leftOut => log.warn({ ...leftOut }, 'log lines were left out'));
  return log;
}

/** Before a line is made: one that is left out costs next to nothing. */
function hooksOf(sampler: LogSampler): NonNullable<LoggerOptions['hooks']> {
  return {
    logMethod(args, method, level) {
      const [first, second] = args as unknown[];
      const message = typeof first === 'string' ? first : second;
      const isSampled = level < ERROR && typeof message === 'string' && message !== LEFT_OUT;
      if (!isSampled || sampler.keeps(message)) method.apply(this, args);
    },
  };
}
