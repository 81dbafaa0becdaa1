/**
 * The control plane's log: JSON lines on stdout, one an event. Secrets, URLs and bytes never come
 * here.
 */
import { type Logger, pino } from 'pino';

/** @param replicaId who holds this process's leases. */
export function createLog(options: { logLevel: string; replicaId: string }): Logger {
  return pino({
    level: options.logLevel,
    base: { program: 'control-plane', replicaId: options.replicaId },
    timestamp: pino.stdTimeFunctions.isoTime,
  });
}
