import { hash, randomBytes } from 'node:crypto';
import type { JobResult } from '../jobs/job-outcome.ts';
import type { CallbackSecrets } from '../secrets/secret-box.ts';

/** 256 bits: the link alone grants access. */
const TOKEN_BYTES = 32;

type StoredToken = Pick<JobResult, 'token' | 'sealedToken'>;

/**
 * The row has the token's SHA-256 and the sealed token, so the database grants no access. During a
 * key change, replicas with both keys seal with both.
 */
export class ResultTokens {
  readonly #secrets: CallbackSecrets;

  constructor(secrets: CallbackSecrets) {
    this.#secrets = secrets;
  }

  make(jobId: string): StoredToken {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    const sealedToken = this.#secrets.sealTextByAll(token, tokenBinding(jobId));
    return { token: hash('sha256', token, 'hex'), sealedToken };
  }

  open(jobId: string, { sealedToken }: Pick<StoredToken, 'sealedToken'>): string {
    const opened = this.#secrets.openTextByAny(sealedToken, tokenBinding(jobId));
    if (opened !== undefined) return opened;
    throw new Error(`the token of job ${jobId} was sealed with a secrets key that is not here`);
  }
}

function tokenBinding(jobId: string): string {
  return `result token of ${jobId}`;
}
