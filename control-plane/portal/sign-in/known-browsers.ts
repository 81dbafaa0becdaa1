import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';

const KEY_BYTES = 32;
const ID_BYTES = 16;
const FORM = /^([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

export interface PasswordOwner {
  readonly userId: string;
  readonly passwordHash: string | null;
}

/** Recognizes browsers in which a person signed in with their current password. */
export class KnownBrowsers {
  readonly #key: Buffer;

  /** @param secretsKey a change only makes every browser unknown */
  constructor(secretsKey: Buffer) {
    const key = hkdfSync('sha256', secretsKey, '', 'known browsers of sign-in', KEY_BYTES);
    this.#key = Buffer.from(key);
  }

  /** The cookie of a browser after a sign-in with a password. */
  create({ userId, passwordHash }: PasswordOwner & { readonly passwordHash: string }): string {
    const id = randomBytes(ID_BYTES).toString('base64url');
    return `${id}.${this.#sealOf(id, userId, passwordHash).toString('base64url')}`;
  }

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
