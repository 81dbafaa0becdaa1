/** The node's log: JSON lines on stdout, one an event. Secrets and image bytes never come here. */
import { type Logger, pino } from 'pino';
import { LogOutput } from '#program/log-output.ts';

const STDOUT = 1;

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export function createLog(options: { logLevel: LogLevel; nodeId: string }): Logger {
  const base = { program: 'inference-node', nodeId: options.nodeId };
  return pino(
    { level: options.logLevel, base, timestamp: pino.stdTimeFunctions.isoTime },
    new LogOutput({ fd: STDOUT, batchBytes: 0, base }),
  );
}
