/** Knows browsers in which a person signed in with the password that they have now. */

import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';

const KEY_BYTES = 32;
const ID_BYTES = 16;
const FORM = /^([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

export interface PasswordOwner {
  readonly userId: string;
  /** Null: the person has no password, so no browser is known. */
  readonly passwordHash: string | null;
}

/** Knows browsers in which a person signed in with the password that they have now. */
export class KnownBrowsers {
  readonly #key: Buffer;

  /** @param secretsKey another key makes every browser an unknown one, and nothing else */
  constructor(secretsKey: Buffer) {
    const key = hkdfSync('sha256', secretsKey, '', 'known browsers of sign-in', KEY_BYTES);
    this.#key = Buffer.from(key);
  }

  /** Makes what the browser keeps after a sign-in with a password. */
  create({ userId, passwordHash }: PasswordOwner & { readonly passwordHash: string }): string {
    const id = randomBytes(ID_BYTES).toString('base64url');
    return `${id}.${this.#sealOf(id, userId, passwordHash).toString('base64url')}`;
  }

  /** Answers the browser's id; undefined: they have not signed in with that password in it. */
  idOf(cookie: string | undefined, { userId, passwordHash }: PasswordOwner): string | undefined {
    const [, id, seal = ''] = FORM.exec(cookie ?? '') ?? [];
    if (id === undefined || passwordHash === null) return undefined;
    const given = Buffer.from(seal, 'base64url');
    const expected = this.#sealOf(id, userId, passwordHash);
    return given.length === expected.length && timingSafeEqual(given, expected) ? id : undefined;
  }

  #sealOf(id: string, userId: string, passwordHash: string): Buffer {
    const parts = [id, userId, passwordHash];
    return createHmac('sha256', this.#key).update(parts.join('.')).digest();
  }
}
