/**
 * Authentication at a bounded cost: requests with the same key share one read of its row, and keys
 * that were valid before are read in the turns of their account.
 */
import {
  API_KEY_MEMORY_MS,
  type ApiKeyOwner,
  type ApiKeyStore,
} from '../store/accounts/api-key-store.ts';
import type { DatabaseTurns } from './database-turns.ts';

type Answer = Awaited<ReturnType<ApiKeyStore['authenticate']>>;

interface Reading {
  readonly answer: Promise<Answer>;
  /** By performance.now(); undefined while it waits for its turn. */
  readonly beganAtMs: () => number | undefined;
}

export class Authenticate {
  readonly #apiKeys: Pick<ApiKeyStore, 'recall' | 'authenticate'>;
  readonly #turns: Pick<DatabaseTurns, 'ofAccount' | 'ofStranger'>;
  /** By token. */
  readonly #readings = new Map<string, Reading>();

  constructor(
    apiKeys: Pick<ApiKeyStore, 'recall' | 'authenticate'>,
    turns: Pick<DatabaseTurns, 'ofAccount' | 'ofStranger'>,
  ) {
    this.#apiKeys = apiKeys;
    this.#turns = turns;
  }

  /** As ApiKeyStore.authenticate. @throws ContractError SERVICE_UNAVAILABLE */
  async authenticate(token: string): Promise<Answer> {
    const known = this.#apiKeys.recall(token);
    if (known === 'malformed') return known;
    if (known?.isFresh) return known.owner;
    const reading = this.#readings.get(token);
    if (reading !== undefined && mayJoin(reading)) return reading.answer;
    return this.#read(token, known?.owner);
  }

  #read(token: string, owner: ApiKeyOwner | undefined): Promise<Answer> {
    let beganAtMs: number | undefined;
    const work = (): Promise<Answer> => {
      beganAtMs = performance.now();
      return this.#apiKeys.authenticate(token);
    };
    const answer = (
      owner === undefined
        ? this.#turns.ofStranger(token, work)
        : this.#turns.ofAccount(owner.accountId, work)
    ).finally(() => {
      if (this.#readings.get(token) === reading) this.#readings.delete(token);
    });
    const reading: Reading = { answer, beganAtMs: () => beganAtMs };
    this.#readings.set(token, reading);
    return answer;
  }
}

/** An answer that hangs is shared no longer than a remembered key is trusted. */
function mayJoin(reading: Reading): boolean {
  const beganAtMs = reading.beganAtMs();
  return beganAtMs === undefined || performance.now() - beganAtMs < API_KEY_MEMORY_MS;
}
