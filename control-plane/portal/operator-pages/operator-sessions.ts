/**
 * Sessions of people who know the operator key. The cookie is `<expiry>.<random>.<signature>`,
 * signed by a key that is derived from the operator key: a new operator key ends every session, and
 * every replica accepts it. Sessions that were signed out are rows until they would have expired.
 */

import { createHmac, hash, hkdfSync, randomBytes } from 'node:crypto';
import type { EndedOperatorSessions } from '../session/ended-operator-sessions.ts';
import { isSameText } from '../session/secret.ts';

export const SESSION_MS = 8 * 3_600_000;
const RANDOM_BYTES = 16;
const TOKEN = /^(\d{1,15})\.([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

export class OperatorSessions {
  readonly #key: Buffer;
  readonly #ended: Pick<EndedOperatorSessions, 'add' | 'has'>;

  constructor(operatorKey: string, ended: Pick<EndedOperatorSessions, 'add' | 'has'>) {
    const about = 'sessions of the operator pages';
    this.#key = Buffer.from(hkdfSync('sha256', operatorKey, '', about, 32));
    this.#ended = ended;
  }

  create(nowMs = Date.now()): string {
    const signed = `${nowMs + SESSION_MS}.${randomBytes(RANDOM_BYTES).toString('base64url')}`;
    return `${signed}.${this.#sign(signed)}`;
  }

  /** Reads the database only for tokens with a valid signature that have not expired. */
  async isValid(token: string | undefined, nowMs = Date.now()): Promise<boolean> {
    const [, endMs, random, signature] = TOKEN.exec(token ?? '') ?? [];
    if (token === undefined || signature === undefined) return false;
    if (!isSameText(signature, this.#sign(`${endMs}.${random}`))) return false;
    const isOver = Number(endMs) <= nowMs || (await this.#ended.has(hash('sha256', token, 'hex')));
    return !isOver;
  }

  async end(token: string): Promise<void> {
    await this.#ended.add(hash('sha256', token, 'hex'), Number(token.split('.', 1)[0]));
  }

  #sign(text: string): string {
    return createHmac('sha256', this.#key).update(`session ${text}`).digest('base64url');
  }
}
