/**
 * The token of a result link, which is all that is needed to get the file. Who reads the database
 * or a backup of it gets none: a row has its SHA-256, to find it by, and the token itself only
 * sealed, to show the link again.
 *
 * | row           | result_token        | sealed           | written                          |
 * |---------------|---------------------|------------------|----------------------------------|
 * | as it is      | SHA-256, 64 digits  | by each key here | by control planes of this one on |
 * | from before   | the token           | null             | by those before, and for a day   |
 * |               |                     |                  | after an upgrade from them       |
 *
 * Control planes from before show what a row has, and look for what they are given: the day lets
 * them end beside new ones. While keys are changed each replica opens what any other sealed, since
 * whoever has two keys seals with both.
 */
import { hash, randomBytes } from 'node:crypto';
import type { CallbackSecrets } from './callback-secret.ts';

/** 256 bits: the link is the capability. */
const TOKEN_BYTES = 32;

/** A token as its row has it. */
export interface StoredToken {
  readonly token: string;
  /** Undefined: the row has the token itself. */
  readonly sealedToken?: string | undefined;
}

export class ResultTokens {
  readonly #secrets: Pick<CallbackSecrets, 'sealTextByAll' | 'openTextByAny'>;
  readonly #now: () => number;
  #plainUntilMs = Number.NEGATIVE_INFINITY;

  /** @param now milliseconds of a clock that never goes back */
  constructor(
    secrets: Pick<CallbackSecrets, 'sealTextByAll' | 'openTextByAny'>,
    now = () => performance.now(),
  ) {
    this.#secrets = secrets;
    this.#now = now;
  }

  /** Control planes from before may run beside this one for so long. */
  keepPlainFor(lengthMs: number): void {
    this.#plainUntilMs = this.#now() + lengthMs;
  }

  /** Of a new result. */
  make(jobId: string): StoredToken {
    const token = randomBytes(TOKEN_BYTES).toString('base64url');
    if (this.#now() < this.#plainUntilMs) return { token };
    const sealedToken = this.#secrets.sealTextByAll(token, bindingOf(jobId));
    return { token: hash('sha256', token, 'hex'), sealedToken };
  }

  /** The token again. Throws where no key that is here opens it. */
  open(jobId: string, { token, sealedToken }: StoredToken): string {
    if (sealedToken === undefined) return token;
    const opened = this.#secrets.openTextByAny(sealedToken, bindingOf(jobId));
    if (opened !== undefined) return opened;
    throw new Error(`the token of job ${jobId} was sealed with a secrets key that is not here`);
  }
}

function bindingOf(jobId: string): string {
  return `result token of ${jobId}`;
}
