/** Who is behind a session's secret. */

import { createHash } from 'node:crypto';
import { noteRequestAccount, noteRequestSecret } from '#program/request-owner.ts';
import {
  type FoundSession,
  SESSION_MS,
  type SessionStore,
} from '../../store/people/session-store.ts';

export { type FoundSession, SESSION_MS };

export class Sessions {
  readonly #store: Pick<SessionStore, 'find'>;

  constructor(store: Pick<SessionStore, 'find'>) {
    this.#store = store;
  }

  /** Undefined: no session (any more). @param secret what the cookie holds */
  async find(secret: string): Promise<FoundSession | undefined> {
    const hash = hashOfSecret(secret);
    noteRequestSecret(hash);
    const found = await this.#store.find(hash);
    if (found !== undefined) noteRequestAccount(found.accountId);
    return found;
  }
}

/** What is stored of a secret that a cookie or a link holds: hexadecimal. */
export function hashOfSecret(secret: string): string {
  return createHash('sha256').update(secret).digest('hex');
}
