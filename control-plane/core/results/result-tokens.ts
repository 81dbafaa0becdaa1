/** The tokens of results' links. */

import { hash, randomBytes } from 'node:crypto';
import type { JobResult } from '../jobs/job-outcome.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';

/** 256 bits: the link is the capability. */
const TOKEN_BYTES = 32;

type StoredToken = Pick<JobResult, 'token' | 'sealedToken'>;

/**
 * A row has the SHA-256 of a link's token, to find it by, and the token only sealed: who reads the
 * database gets none. While keys are changed whoever has two seals with both.
 */
export class ResultTokens {
  readonly #secrets: CallbackSecrets;

  constructor(secrets: CallbackSecrets) {
    this.#secrets = secrets;
  }

  make(jobId: string): StoredToken {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    const sealedToken = this.#secrets.sealTextByAll(token, bindingOf(jobId));
    return { token: hash('sha256', token, 'hex'), sealedToken };
  }

  /** Throws where no key that is here opens it. */
  open(jobId: string, { sealedToken }: Pick<StoredToken, 'sealedToken'>): string {
    const opened = this.#secrets.openTextByAny(sealedToken, bindingOf(jobId));
    if (opened !== undefined) return opened;
    throw new Error(`the token of job ${jobId} was sealed with a secrets key that is not here`);
  }
}

function bindingOf(jobId: string): string {
  return `result token of ${jobId}`;
}
