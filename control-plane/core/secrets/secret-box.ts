/**
 * Secrets at rest: AES-256-GCM, each bound to its owner, so that a ciphertext copied into another
 * row does not open. Layout: nonce (12 bytes), tag (16), ciphertext. A SecretBox has one key,
 * CallbackSecrets all keys of a replica.
 */
import {
  createCipheriv,
  createDecipheriv,
  createSecretKey,
  hash,
  type KeyObject,
  randomBytes,
} from 'node:crypto';
import { signingKeyOf } from '@matting/http/outgoing/webhook-signature.ts';

const CIPHER = 'aes-256-gcm';
/** Random nonces of this length stay distinct for about 2^32 secrets under one key. */
const NONCE_BYTES = 12;
const TAG_BYTES = 16;
/** Of a hash: identifies the key and does not reveal it. */
const KEY_ID_LENGTH = 16;

export class SecretBox {
  /** A KeyObject takes Node a third of the time that bytes take. */
  readonly #key: KeyObject;
  readonly keyId: string;

  constructor(key: Uint8Array) {
    this.#key = createSecretKey(key);
    this.keyId = hash('sha256', key, 'hex').slice(0, KEY_ID_LENGTH);
  }

  /** @param boundTo the secret's owner; `open` needs the same text */
  seal(secret: Uint8Array, boundTo: string): Buffer {
    const nonce = randomBytes(NONCE_BYTES);
    const cipher = createCipheriv(CIPHER, this.#key, nonce, { authTagLength: TAG_BYTES });
    cipher.setAAD(Buffer.from(boundTo, 'utf8'));
    const sealed = Buffer.concat([cipher.update(secret), cipher.final()]);
    return Buffer.concat([nonce, cipher.getAuthTag(), sealed]);
  }

  /** Undefined: sealed with another key, bound to another owner, or altered. */
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
      // final() throws here only if the tag does not match.
      return undefined;
    }
  }
}

/*
 * An account's own secret is bound to the account and, for each event, to the event. Secrets are
 * never logged. The same keys seal texts that grant access, such as links.
 */

interface SealedCallbackSecret {
  readonly secret: Uint8Array | null;
  /** Of the sealing key; null exactly if `secret` is. */
  readonly secretKeyId: string | null;
}

interface OpenableSecret {
  readonly secret: Uint8Array;
  readonly secretKeyId: string;
}

export class CallbackSecrets {
  readonly #box: SecretBox;
  readonly #boxes: readonly SecretBox[];

  /** @param previous keys that only open, during a key change */
  constructor(box: SecretBox, previous: readonly SecretBox[] = []) {
    this.#box = box;
    this.#boxes = [box, ...previous];
  }

  get keyIds(): readonly string[] {
    return this.#boxes.map(box => box.keyId);
  }

  seal(jobId: string, secret: string): OpenableSecret {
    const sealed = this.#box.seal(signingKeyOf(secret), secretBinding(jobId));
    return { secret: sealed, secretKeyId: this.#box.keyId };
  }

  /** Undefined: no secret, an unknown key, or the secret of another job. */
  open(jobId: string, { secret, secretKeyId }: SealedCallbackSecret): Buffer | undefined {
    const box = this.#boxes.find(({ keyId }) => keyId === secretKeyId);
    return secret === null ? undefined : box?.open(secret, secretBinding(jobId));
  }

  /** Opens one owner's secret and seals it for another with the current key. */
  rebind(fromId: string, toId: string, sealed: OpenableSecret): OpenableSecret | undefined {
    const key = this.open(fromId, sealed);
    if (key === undefined) return undefined;
    return { secret: this.#box.seal(key, secretBinding(toId)), secretKeyId: this.#box.keyId };
  }

  /** Returns the key's id, a full stop, Base64. @param boundTo `openText` needs the same */
  sealText(text: string, boundTo: string): string {
    return sealedBy(this.#box, text, boundTo);
  }

  openText(sealed: string, boundTo: string): string | undefined {
    const [keyId, base64 = ''] = sealed.split('.');
    const box = this.#boxes.find(one => one.keyId === keyId);
    return box?.open(Buffer.from(base64, 'base64'), boundTo)?.toString('utf8');
  }

  /** So that a replica with any of the configured keys opens it. */
  sealTextByAll(text: string, boundTo: string): string {
    return this.#boxes.map(box => sealedBy(box, text, boundTo)).join(' ');
  }

  openTextByAny(sealed: string, boundTo: string): string | undefined {
    for (const one of sealed.split(' ')) {
      const text = this.openText(one, boundTo);
      if (text !== undefined) return text;
    }
    return undefined;
  }

  get keyId(): string {
    return this.#box.keyId;
  }
}

/** A notification's body is bound to this. @param id of its job or of an account's event */
export function notificationBody(id: string): string {
  return `body of notification ${id}`;
}

export function mailBody(id: string): string {
  return `body of mail ${id}`;
}

function sealedBy(box: SecretBox, text: string, boundTo: string): string {
  const sealed = box.seal(Buffer.from(text, 'utf8'), boundTo);
  return `${box.keyId}.${sealed.toString('base64')}`;
}

function secretBinding(jobId: string): string {
  return `callback_secret of ${jobId}`;
}
