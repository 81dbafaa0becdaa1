/**
 * Secrets at rest: AES-256-GCM under one key, each bound to its owner, so that a ciphertext copied
 * into another row cannot be opened. Layout: nonce (12 bytes), tag (16), ciphertext.
 * It knows neither rows nor what the secrets are for.
 */
import { createCipheriv, createDecipheriv, hash, randomBytes } from 'node:crypto';

const CIPHER = 'aes-256-gcm';
/** Random nonces of this length stay distinct for about 2^32 secrets under one key. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Hexadecimal digits: they identify the key and reveal nothing of it. */
const KEY_ID_LENGTH = 16;

export class SecretBox {
  readonly #key: Uint8Array;
  /** Stored beside each sealed secret: it tells which of several keys opens it. */
  readonly keyId: string;

  /** @param key 32 bytes */
  constructor(key: Uint8Array) {
    this.#key = key;
    this.keyId = hash('sha256', key, 'hex').slice(0, KEY_ID_LENGTH);
  }

  /** @param boundTo what the secret belongs to; `open` needs the same text */
  seal(secret: Uint8Array, boundTo: string): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(Buffer.from(boundTo, 'utf8'));
    const sealed = Buffer.concat([cipher.update(secret), cipher.final()]);
    return Buffer.concat([nonce, cipher.getAuthTag(), sealed]);
  }

  /** Undefined: sealed with another key, bound to something else, or altered. */
  open(sealed: Uint8Array, boundTo: string): Buffer | undefined {
    if (sealed.length < NONCE_BYTES + TAG_BYTES) return undefined;
    const nonce = sealed.subarray(0, NONCE_BYTES);
    const decipher = createDecipheriv(CIPHER, this.#key, nonce, { authTagLength: TAG_BYTES });
    decipher.setAuthTag(sealed.subarray(NONCE_BYTES, NONCE_BYTES + TAG_BYTES));
    decipher.setAAD(Buffer.from(boundTo, 'utf8'));
    const opened = decipher.update(sealed.subarray(NONCE_BYTES + TAG_BYTES));
    try {
      return Buffer.concat([opened, decipher.final()]);
    } catch {
      // The one thing that final() throws for here: the tag does not fit.
      return undefined;
    }
  }
}
