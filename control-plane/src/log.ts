/**
 * The control plane's log: JSON lines on stdout, one an event. Secrets, URLs and bytes never come
 * here.
 */
import { type Logger, pino } from 'pino';

/** Lines are written together: a write of each costs a job's read 7 % of its time. */
const BATCH_BYTES = 4096;
/** The longest a line waits for others; what a SIGKILL can lose. */
const FLUSH_MS = 100;
const STDOUT = 1;

/** @param replicaId who holds this process's leases. */
export function createLog(options: { logLevel: string; replicaId: string }): Logger {
  const destination = pino.destination({ dest: STDOUT, sync: false, minLength: BATCH_BYTES });
  setInterval(() => destination.flush(), FLUSH_MS).unref();
  return pino(
    {
      level: options.logLevel,
      base: { program: 'control-plane', replicaId: options.replicaId },
      timestamp: pino.stdTimeFunctions.isoTime,
    },
    destination,
  );
}
