/** Who is behind a session's secret. */
import { createHash } from 'node:crypto';
import {
  type FoundSession,
  SESSION_MS,
  type SessionStore,
} from '../../store/people/session-store.ts';
import type { DatabaseTurns } from '../database-turns.ts';

export { type FoundSession, SESSION_MS };

export class Sessions {
  readonly #store: Pick<SessionStore, 'find'>;
  readonly #turns: Pick<DatabaseTurns, 'ofStranger'>;

  constructor(store: Pick<SessionStore, 'find'>, turns: Pick<DatabaseTurns, 'ofStranger'>) {
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
