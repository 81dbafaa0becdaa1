import { noteRequestAccount, noteRequestSecret } from '@matting/program/request-owner.ts';
import { API_KEY_CACHE_MS, type ApiKeyCache, type Authentication } from './api-key-cache.ts';

/** Requests with the same key share one read of its row. The read counts for the key's account. */
export class Authenticate {
  readonly #apiKeys: Pick<ApiKeyCache, 'recall' | 'authenticate'>;
  readonly #reads = new Map<string, { answer: Promise<Authentication>; startedAtMs: number }>();

  constructor(apiKeys: Pick<ApiKeyCache, 'recall' | 'authenticate'>) {
    this.#apiKeys = apiKeys;
  }

  async authenticate(token: string): Promise<Authentication> {
    const recalled = this.#apiKeys.recall(token);
    if (recalled === 'malformed') return recalled;
    if (recalled === undefined) noteRequestSecret(token);
    else noteRequestAccount(recalled.owner.accountId);
    if (recalled?.isFresh) return recalled.owner;
    const answer = await this.#read(token);
    if (typeof answer === 'object' && 'accountId' in answer) noteRequestAccount(answer.accountId);
    return answer;
  }

  #read(token: string): Promise<Authentication> {
    const shared = this.#reads.get(token);
    // Requests share a slow answer only as long as they would trust a cached key.
    if (shared && performance.now() - shared.startedAtMs < API_KEY_CACHE_MS) return shared.answer;
    const answer = this.#apiKeys.authenticate(token).finally(() => {
      if (this.#reads.get(token) === read) this.#reads.delete(token);
    });
    const read = { answer, startedAtMs: performance.now() };
    this.#reads.set(token, read);
    return answer;
  }
}
