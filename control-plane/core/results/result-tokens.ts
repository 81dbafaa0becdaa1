/**
 * The token of a result link, which is all that is needed to get the file. Who reads the database
 * or a backup of it gets none: a row has its SHA-256, to find it by, and the token itself only
 * sealed, to show the link again. While keys are changed each replica opens what any other sealed,
 * since whoever has two keys seals with both.
 */
import { hash, randomBytes } from 'node:crypto';
import type { CallbackSecrets } from '../secrets/secret-box.ts';

/** 256 bits: the link is the capability. */
const TOKEN_BYTES = 32;

/** A token as its row has it. */
export interface StoredToken {
  readonly token: string;
  readonly sealedToken: string;
}

export class ResultTokens {
  readonly #secrets: CallbackSecrets;

  constructor(secrets: CallbackSecrets) {
    this.#secrets = secrets;
  }

  /** Of a new result. */
  make(jobId: string): StoredToken {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    const sealedToken = this.#secrets.sealTextByAll(token, bindingOf(jobId));
    return { token: hash('sha256', token, 'hex'), sealedToken };
  }

  /** The token again. Throws where no key that is here opens it. */
  open(jobId: string, { sealedToken }: Pick<StoredToken, 'sealedToken'>): string {
    const opened = this.#secrets.openTextByAny(sealedToken, bindingOf(jobId));
    if (opened !== undefined) return opened;
    throw new Error(`the token of job ${jobId} was sealed with a secrets key that is not here`);
  }
}

function bindingOf(jobId: string): string {
  return `result token of ${jobId}`;
}
