/** The node's log: JSON lines on stdout, one an event. Secrets and image bytes never come here. */
import { type Logger, pino } from 'pino';

export const LOG_LEVELS = ['fatal', 'error', 'warn', 'info', 'debug', 'trace', 'silent'] as const;
export type LogLevel = (typeof LOG_LEVELS)[number];

export function createLog(options: { logLevel: LogLevel; nodeId: string }): Logger {
  return pino({
    level: options.logLevel,
    base: { program: 'inference-node', nodeId: options.nodeId },
    timestamp: pino.stdTimeFunctions.isoTime,
  });
}
