import { noteRequestAccount, noteRequestSecret } from '@matting/program/request-owner.ts';
import { API_KEY_MEMORY_MS, type Authentication, type KnownKeys } from './known-keys.ts';

/** Requests with the same key share one read of its row, which counts for its account. */
export class Authenticate {
  readonly #apiKeys: Pick<KnownKeys, 'recall' | 'authenticate'>;
  readonly #readings = new Map<string, { answer: Promise<Authentication>; askedAtMs: number }>();

  constructor(apiKeys: Pick<KnownKeys, 'recall' | 'authenticate'>) {
    this.#apiKeys = apiKeys;
  }

  async authenticate(token: string): Promise<Authentication> {
    const known = this.#apiKeys.recall(token);
    if (known === 'malformed') return known;
    if (known === undefined) noteRequestSecret(token);
    else noteRequestAccount(known.owner.accountId);
    if (known?.isFresh) return known.owner;
    const answer = await this.#read(token);
    if (typeof answer === 'object' && 'accountId' in answer) noteRequestAccount(answer.accountId);
    return answer;
  }

  #read(token: string): Promise<Authentication> {
    const shared = this.#readings.get(token);
    // A hanging answer is shared only as long as a cached key is trusted.
    if (shared && performance.now() - shared.askedAtMs < API_KEY_MEMORY_MS) return shared.answer;
    const answer = this.#apiKeys.authenticate(token).finally(() => {
      if (this.#readings.get(token) === reading) this.#readings.delete(token);
    });
    const reading = { answer, askedAtMs: performance.now() };
    this.#readings.set(token, reading);
    return answer;
  }
}
