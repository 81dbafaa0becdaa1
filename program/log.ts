/** A program's log: JSON lines on stdout, one an event. Secrets, URLs and bytes never come here. */
import { type Logger, pino } from 'pino';
import { LogOutput } from './log-output.ts';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const STDOUT = 1;

export interface LogOptions {
  readonly level: LogLevel;
  /** As LogOutputOptions. */
  readonly batchBytes: number;
  /** Fields of every line: which program it is, and which of several. */
  readonly base: Readonly<Record<string, string>>;
}

export function createLog({ level, batchBytes, base }: LogOptions): Logger {
  return pino(
    { level, base, timestamp: pino.stdTimeFunctions.isoTime },
    new LogOutput({ fd: STDOUT, batchBytes, base }),
  );
}
