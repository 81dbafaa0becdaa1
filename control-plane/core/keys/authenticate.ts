/**
 * Authentication at a bounded cost: requests with the same key share one read of its row. It says
 * whose request it is, so that a key that was valid before is read in the share of its account.
 */
import { noteRequestAccount, noteRequestSecret } from '#program/request-owner.ts';
import { API_KEY_MEMORY_MS, type ApiKeyOwner, type ApiKeyStore } from './api-key-store.ts';

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

/*
 * When keys were used last: noted in memory by each request, written in batches off its path, at
 * most once a minute and key. What was not written is lost with the process, which harms nobody:
 * the next use is noted again.
 */

/** A key that is used all the time is written this often. */
const WRITE_EVERY_MS = 60_000;
/** How late what is due is written. */
const LOOK_EVERY_MS = 5000;
/**
 * Keys noted at once, as many as are remembered; beyond it the one that was noted first is dropped.
 */
const KEYS_MAX = 10_000;

interface Noted {
  readonly apiKeyId: string;
  readonly byPreviousSecret: boolean;
  /** By performance.now(). */
  usedAtMs: number;
  /** undefined: never. */
  writtenAtMs: number | undefined;
}

export class KeyUses {
  readonly #store: Pick<ApiKeyStore, 'noteUses'>;
  readonly #keysMax: number;
  readonly #noted = new Map<string, Noted>();
  #onFailed: (error: unknown) => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;

  constructor(store: Pick<ApiKeyStore, 'noteUses'>, keysMax = KEYS_MAX) {
    this.#store = store;
    this.#keysMax = keysMax;
  }

  /** Of every request that its key may make. */
  note({ apiKeyId, ...owner }: ApiKeyOwner): void {
    const byPreviousSecret = owner.byPreviousSecret === true;
    const name = byPreviousSecret ? `${apiKeyId} previous` : apiKeyId;
    const usedAtMs = performance.now();
    const known = this.#noted.get(name);
    if (known !== undefined) {
      known.usedAtMs = usedAtMs;
      return;
    }
    if (this.#noted.size >= this.#keysMax) {
      const oldest = this.#noted.keys().next();
      if (!oldest.done) this.#noted.delete(oldest.value);
    }
    this.#noted.set(name, { apiKeyId, byPreviousSecret, usedAtMs, writtenAtMs: undefined });
  }

  /** @param onFailed a batch could not be written: it is tried again */
  start(onFailed: (error: unknown) => void): void {
    this.#onFailed = onFailed;
    this.#timer = setInterval(() => void this.write(), LOOK_EVERY_MS);
    this.#timer.unref();
  }

  /** Writes what is left, once. Never rejects. */
  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await this.write(0);
  }

  /** Writes what is due; one batch is under way at most. Never rejects. */
  async write(everyMs = WRITE_EVERY_MS): Promise<void> {
    this.#writing ??= this.#write(everyMs).finally(() => {
      this.#writing = undefined;
    });
    await this.#writing;
  }

  async #write(everyMs: number): Promise<void> {
    const nowMs = performance.now();
    const due: Noted[] = [];
    for (const [name, noted] of this.#noted) {
      const { usedAtMs, writtenAtMs } = noted;
      if (writtenAtMs !== undefined && nowMs - writtenAtMs < everyMs) continue;
      if (writtenAtMs === undefined || usedAtMs > writtenAtMs) due.push(noted);
      else this.#noted.delete(name);
    }
    if (due.length === 0) return;
    const uses = due.map(({ apiKeyId, byPreviousSecret, usedAtMs }) => {
      return { apiKeyId, byPreviousSecret, ageMs: nowMs - usedAtMs };
    });
    try {
      await this.#store.noteUses(uses);
      for (const noted of due) noted.writtenAtMs = nowMs;
    } catch (error) {
      this.#onFailed(error);
    }
  }
}
