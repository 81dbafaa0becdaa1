/**
 * Nodes that the registry refuses, so that an operator sees why one does not appear: each refusal
 * is counted, and each cause is logged from time to time only, since nodes never stop trying, and
 * unknown callers may not either.
 */
import type { Logger } from 'pino';

/**
 * token: no token, or a wrong one; invalid: what it says of itself is not usable; replaced: another
 * live process has registered under its node id since.
 */
export const REFUSAL_CAUSES = ['token', 'invalid', 'replaced'] as const;
export type RefusalCause = (typeof REFUSAL_CAUSES)[number];

export interface NodeRefusal {
  readonly cause: RefusalCause;
  /** As the node says; undefined where that is no node id. */
  readonly nodeId: string | undefined;
  /** Where it called from. */
  readonly peer: string;
  readonly detail: string;
}

/** Between two lines of one cause. */
const LINE_EVERY_MS = 10_000;

/** @param now milliseconds of a clock that never goes back */
export function noteRefusals(
  log: Pick<Logger, 'warn'>,
  observer: { nodeRefused(cause: RefusalCause): void },
  now = () => performance.now(),
): (refusal: NodeRefusal) => void {
  const loggedAtMs = new Map<RefusalCause, number>();
  return refusal => {
    const { cause } = refusal;
    observer.nodeRefused(cause);
    const nowMs = now();
    if (nowMs - (loggedAtMs.get(cause) ?? Number.NEGATIVE_INFINITY) < LINE_EVERY_MS) return;
    loggedAtMs.set(cause, nowMs);
    log.warn({ ...refusal }, 'a node was refused');
  };
}
