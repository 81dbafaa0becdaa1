/**
 * The control plane's log: JSON lines on stdout, one an event. Secrets, URLs and bytes never come
 * here.
 */
import { type Logger, pino } from 'pino';
import { LogOutput } from '#program/log-output.ts';

/** Lines are written together: a write of each costs a job's read 7 % of its time. */
const BATCH_BYTES = 4096;
const STDOUT = 1;

/** @param replicaId who holds this process's leases. */
export function createLog(options: { logLevel: string; replicaId: string }): Logger {
  const base = { program: 'control-plane', replicaId: options.replicaId };
  return pino(
    { level: options.logLevel, base, timestamp: pino.stdTimeFunctions.isoTime },
    new LogOutput({ fd: STDOUT, batchBytes: BATCH_BYTES, base }),
  );
}
