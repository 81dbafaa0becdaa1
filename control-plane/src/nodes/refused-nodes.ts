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

export interface RefusedNodesOptions {
  readonly log: Pick<Logger, 'warn'>;
  readonly observer: { nodeRefused(cause: RefusalCause): void };
  readonly now?: () => number;
}

export class RefusedNodes {
  readonly #options: RefusedNodesOptions;
  readonly #now: () => number;
  readonly #loggedAtMs = new Map<RefusalCause, number>();

  constructor(options: RefusedNodesOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
  }

  note(refusal: NodeRefusal): void {
    const { log, observer } = this.#options;
    const { cause } = refusal;
    observer.nodeRefused(cause);
    const now = this.#now();
    if (now - (this.#loggedAtMs.get(cause) ?? Number.NEGATIVE_INFINITY) < LINE_EVERY_MS) return;
    this.#loggedAtMs.set(cause, now);
    log.warn({ ...refusal }, 'a node was refused');
  }
}
