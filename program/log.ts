/** A program's log: JSON lines on stdout, one an event. Secrets, URLs and bytes never come here. */
import { type Logger, pino } from 'pino';
import { LogOutput } from './log-output.ts';
import { traceFields } from './tracing/active-span.ts';

export const LOG_LEVELS = ['trace', 'debug', 'info', 'warn', 'error', 'fatal', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

const STDOUT = 1;

export interface LogOptions {
  readonly level: LogLevel;
  /** As LogOutputOptions. */
  readonly batchBytes: number;
  /** Fields of every line: which program it is, and which of several. */
  readonly base: Readonly<Record<string, string>>;
  /** Lines name the trace that they are written under. */
  readonly traced?: boolean;
}

export function createLog({ level, batchBytes, base, traced = false }: LogOptions): Logger {
  const mixin = traced && { mixin: () => traceFields() ?? {} };
  return pino(
    { level, base, timestamp: pino.stdTimeFunctions.isoTime, ...mixin },
    new LogOutput({ fd: STDOUT, batchBytes, base }),
  );
}
