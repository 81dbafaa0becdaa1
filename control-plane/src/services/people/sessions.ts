/** Who is behind a session's secret, and the sessions that a person has. */
import { createHash } from 'node:crypto';
import type {
  FoundSession,
  ListedSession,
  SessionStore,
} from '../../store/people/session-store.ts';
import type { DatabaseTurns } from '../database-turns.ts';

export type { FoundSession, ListedSession };

export class Sessions {
  readonly #store: SessionStore;
  readonly #turns: Pick<DatabaseTurns, 'ofStranger' | 'ofAccount'>;

  constructor(store: SessionStore, turns: Pick<DatabaseTurns, 'ofStranger' | 'ofAccount'>) {
    this.#store = store;
    this.#turns = turns;
  }

  /** Undefined: no session (any more). @param secret what the cookie holds */
  find(secret: string): Promise<FoundSession | undefined> {
    const hash = hashOfSecret(secret);
    return this.#turns.ofStranger(hash, () => this.#store.find(hash));
  }
}

/** What is stored of a secret that a cookie or a link holds: hexadecimal. */
export function hashOfSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
