/**
 * callback_secret between a submission and the signature of its notification: decoded once, stored
 * encrypted and bound to its job. That of an account's own events is bound to the account, and for
 * each event to the event. Neither form is ever logged or shown again. Texts that wait to be sent
 * and hold what somebody could use, a link or a result's address, are sealed by the same keys.
 */
import type { SecretBox } from '../secrets/secret-box.ts';

/** Standard Webhooks' form; its Base64 with or without padding. */
const PREFIXED = /^whsec_((?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}(?:==)?|[A-Za-z0-9+/]{3}=?)?)$/;
const PREFIXED_BYTES_MIN = 24;
const PREFIXED_BYTES_MAX = 64;

/**
 * The key that notifications are signed with: what `whsec_` and the Base64 of 24 to 64 bytes stand
 * for; the bytes of any other text as they are.
 */
export function signingKeyOf(secret: string): Buffer {
  const base64 = PREFIXED.exec(secret)?.[1];
  if (base64 !== undefined) {
    const key = Buffer.from(base64, 'base64');
    if (key.length >= PREFIXED_BYTES_MIN && key.length <= PREFIXED_BYTES_MAX) return key;
  }
  return Buffer.from(secret, 'utf8');
}

/** A callback's signing key as it is stored with its job. */
export interface SealedCallbackSecret {
  /** Null: there is none, or it was cleared. */
  readonly secret: Uint8Array | null;
  /** Which key sealed it; null exactly where `secret` is. */
  readonly secretKeyId: string | null;
}

export interface OpenableSecret {
  readonly secret: Uint8Array;
  readonly secretKeyId: string;
}

export class CallbackSecrets {
  readonly #box: SecretBox;
  readonly #boxes: readonly SecretBox[];

  /**
   * @param box seals, and opens what it sealed
   * @param previous only open what they sealed, while keys are changed
   */
  constructor(box: SecretBox, previous: readonly SecretBox[] = []) {
    this.#box = box;
    this.#boxes = [box, ...previous];
  }

  /** Ids of the keys that `open` knows. */
  get keyIds(): readonly string[] {
    return this.#boxes.map(box => box.keyId);
  }

  /** Seals the signing key that this text stands for. */
  seal(jobId: string, secret: string): OpenableSecret {
    const sealed = this.#box.seal(signingKeyOf(secret), bindingOf(jobId));
    return { secret: sealed, secretKeyId: this.#box.keyId };
  }

  /**
   * The signing key again. Undefined: there is none, or it was sealed with a key that is not here
   * or for another job.
   */
  open(jobId: string, { secret, secretKeyId }: SealedCallbackSecret): Buffer | undefined {
    const box = this.#boxes.find(({ keyId }) => keyId === secretKeyId);
    return secret === null ? undefined : box?.open(secret, bindingOf(jobId));
  }

  /**
   * What was sealed for one owner, sealed for another, by the key that seals now. Undefined: as of
   * `open`.
   */
  rebind(fromId: string, toId: string, sealed: OpenableSecret): OpenableSecret | undefined {
    const key = this.open(fromId, sealed);
    if (key === undefined) return undefined;
    return { secret: this.#box.seal(key, bindingOf(toId)), secretKeyId: this.#box.keyId };
  }

  /** The key's id, a full stop, Base64. @param boundTo `openText` needs the same */
  sealText(text: string, boundTo: string): string {
    return sealedBy(this.#box, text, boundTo);
  }

  /** Undefined: as of `open`. */
  openText(sealed: string, boundTo: string): string | undefined {
    const [keyId, base64 = ''] = sealed.split('.');
    const box = this.#boxes.find(one => one.keyId === keyId);
    return box?.open(Buffer.from(base64, 'base64'), boundTo)?.toString('utf8');
  }

  /** As `sealText`, by every key that is here: a replica that has one of them opens it. */
  sealTextByAll(text: string, boundTo: string): string {
    return this.#boxes.map(box => sealedBy(box, text, boundTo)).join(' ');
  }

  /** Undefined: sealed by no key that is here. */
  openTextByAny(sealed: string, boundTo: string): string | undefined {
    for (const one of sealed.split(' ')) {
      const text = this.openText(one, boundTo);
      if (text !== undefined) return text;
    }
    return undefined;
  }

  /** Id of the key that seals now. */
  get keyId(): string {
    return this.#box.keyId;
  }
}

/** What an account's own secret is bound to, in the place of a job's id. */
export function accountSecretId(accountId: string): string {
  return `account ${accountId}`;
}

/** What a notification's body is bound to. @param id its job's, or of an account's event */
export function notificationBody(id: string): string {
  return `body of notification ${id}`;
}

/** What a mail's body is bound to. */
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
