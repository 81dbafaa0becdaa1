/**
 * Secrets at rest: AES-256-GCM under one key, each bound to its owner, so that a ciphertext copied
 * into another row cannot be opened. Layout: nonce (12 bytes), tag (16), ciphertext. A SecretBox
 * has one key; CallbackSecrets has those of a replica, and what is bound to what.
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
/** Hexadecimal digits: they identify the key and reveal nothing of it. */
const KEY_ID_LENGTH = 16;

export class SecretBox {
  /** Node takes a third of the time with it that it takes with bytes. */
  readonly #key: KeyObject;
  /** Stored beside each sealed secret; shows which of several keys opens it. */
  readonly keyId: string;

  constructor(key: Uint8Array) {
    this.#key = createSecretKey(key);
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

/*
 * callback_secret between a submission and its notification's signature: decoded once, stored
 * encrypted, bound to its job; an account's own to the account and, for each event, to the event.
 * It is never logged or shown again. The same keys seal texts that somebody could use: links,
 * results' addresses.
 */

/** A callback's signing key as it is stored with its job. */
interface SealedCallbackSecret {
  readonly secret: Uint8Array | null;
  /** The key that sealed it; null exactly if `secret` is. */
  readonly secretKeyId: string | null;
}

interface OpenableSecret {
  readonly secret: Uint8Array;
  readonly secretKeyId: string;
}

export class CallbackSecrets {
  readonly #box: SecretBox;
  readonly #boxes: readonly SecretBox[];

  /** @param previous only open what they sealed, while keys are changed */
  constructor(box: SecretBox, previous: readonly SecretBox[] = []) {
    this.#box = box;
    this.#boxes = [box, ...previous];
  }

  get keyIds(): readonly string[] {
    return this.#boxes.map(box => box.keyId);
  }

  seal(jobId: string, secret: string): OpenableSecret {
    const sealed = this.#box.seal(signingKeyOf(secret), bindingOf(jobId));
    return { secret: sealed, secretKeyId: this.#box.keyId };
  }

  /** Undefined: there is none, or it was sealed with a key that is not here or for another job. */
  open(jobId: string, { secret, secretKeyId }: SealedCallbackSecret): Buffer | undefined {
    const box = this.#boxes.find(({ keyId }) => keyId === secretKeyId);
    return secret === null ? undefined : box?.open(secret, bindingOf(jobId));
  }

  /** Seals for one owner, by the key that seals now, a secret that was sealed for another. */
  rebind(fromId: string, toId: string, sealed: OpenableSecret): OpenableSecret | undefined {
    const key = this.open(fromId, sealed);
    if (key === undefined) return undefined;
    return { secret: this.#box.seal(key, bindingOf(toId)), secretKeyId: this.#box.keyId };
  }

  /** The key's id, a full stop, Base64. @param boundTo `openText` needs the same */
  sealText(text: string, boundTo: string): string {
    return sealedBy(this.#box, text, boundTo);
  }

  openText(sealed: string, boundTo: string): string | undefined {
    const [keyId, base64 = ''] = sealed.split('.');
    const box = this.#boxes.find(one => one.keyId === keyId);
    return box?.open(Buffer.from(base64, 'base64'), boundTo)?.toString('utf8');
  }

  /** Seals as `sealText`, by every key that is here: a replica that has one of them opens it. */
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

/** A notification's body is bound to this. @param id its job's, or of an account's event */
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

function bindingOf(jobId: string): string {
  return `callback_secret of ${jobId}`;
}
