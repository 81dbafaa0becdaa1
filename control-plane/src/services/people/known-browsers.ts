/**
 * Browsers in which a person has signed in before: a cookie that only this service can have made,
 * for that mail. It signs nobody in; it keeps strangers' failures from locking the person out.
 */
import { createHmac, hkdfSync, randomBytes, timingSafeEqual } from 'node:crypto';
import { mailKeyOf } from '../../domain/account/mail-address.ts';

const KEY_BYTES = 32;
const ID_BYTES = 16;
const FORM = /^([A-Za-z0-9_-]{22})\.([A-Za-z0-9_-]{43})$/;

export class KnownBrowsers {
  readonly #key: Buffer;

  /** @param secretsKey another key makes every browser an unknown one, and nothing else */
  constructor(secretsKey: Buffer) {
    const key = hkdfSync('sha256', secretsKey, '', 'known browsers of sign-in', KEY_BYTES);
    this.#key = Buffer.from(key);
  }

  /** What the browser keeps from a sign-in on. */
  create(mail: string): string {
    const id = randomBytes(ID_BYTES).toString('base64url');
    return `${id}.${this.#sealOf(id, mail).toString('base64url')}`;
  }

  /** The browser's id; undefined: nobody has signed in with that mail in it. */
  idOf(cookie: string | undefined, mail: string): string | undefined {
    const [, id, seal = ''] = FORM.exec(cookie ?? '') ?? [];
    if (id === undefined) return undefined;
    const given = Buffer.from(seal, 'base64url');
    const expected = this.#sealOf(id, mail);
    return given.length === expected.length && timingSafeEqual(given, expected) ? id : undefined;
  }

  #sealOf(id: string, mail: string): Buffer {
    return createHmac('sha256', this.#key)
      .update(`${id}.${mailKeyOf(mail)}`)
      .digest();
  }
}
