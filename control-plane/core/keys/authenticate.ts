/**
 * Authentication at a bounded cost: requests with the same key share one read of its row. It says
 * whose request it is, so that a key that was valid before is read in the share of its account.
 */
import { noteRequestAccount, noteRequestSecret } from '#program/request-owner.ts';
import { API_KEY_MEMORY_MS, type ApiKeyStore } from './api-key-store.ts';

type Answer = Awaited<ReturnType<ApiKeyStore['authenticate']>>;

interface Reading {
  readonly answer: Promise<Answer>;
  /** By performance.now(). */
  readonly askedAtMs: number;
}

export class Authenticate {
  readonly #apiKeys: Pick<ApiKeyStore, 'recall' | 'authenticate'>;
  /** By token. */
  readonly #readings = new Map<string, Reading>();

  constructor(apiKeys: Pick<ApiKeyStore, 'recall' | 'authenticate'>) {
    this.#apiKeys = apiKeys;
  }

  /** As ApiKeyStore.authenticate. @throws ContractError SERVICE_UNAVAILABLE */
  async authenticate(token: string): Promise<Answer> {
    const known = this.#apiKeys.recall(token);
    if (known === 'malformed') return known;
    if (known === undefined) noteRequestSecret(token);
    else noteRequestAccount(known.owner.accountId);
    if (known?.isFresh) return known.owner;
    const answer = await this.#read(token);
    if (typeof answer === 'object' && 'accountId' in answer) noteRequestAccount(answer.accountId);
    return answer;
  }

  #read(token: string): Promise<Answer> {
    const shared = this.#readings.get(token);
    if (shared !== undefined && mayJoin(shared)) return shared.answer;
    const answer = this.#apiKeys.authenticate(token).finally(() => {
      if (this.#readings.get(token) === reading) this.#readings.delete(token);
    });
    const reading = { answer, askedAtMs: performance.now() };
    this.#readings.set(token, reading);
    return answer;
  }
}

/** An answer that hangs is shared no longer than a remembered key is trusted. */
function mayJoin({ askedAtMs }: Reading): boolean {
  return performance.now() - askedAtMs < API_KEY_MEMORY_MS;
}
