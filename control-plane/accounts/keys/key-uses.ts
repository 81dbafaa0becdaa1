/**
 * Records in memory when requests last used a key, and writes that in batches outside of requests.
 * A crash loses some uses; the next use records them again.
 */

import { type Database, query } from '@matting/database/database.ts';
import { forgetOldest } from '@matting/program/caches.ts';
import { sql } from 'kysely';
import { API_KEYS_CACHED_MAX, type ApiKeyOwner } from './api-key-cache.ts';

/** Interval of writes for a key in constant use. */
const WRITE_INTERVAL_MS = 60_000;
/** Longest delay of a due write. */
const CHECK_INTERVAL_MS = 5000;

interface RecordedUse {
  readonly apiKeyId: string;
  readonly byPreviousSecret: boolean;
  usedAtMs: number;
  writtenAtMs: number | undefined;
}

interface KeyUseStore {
  noteUses(uses: readonly KeyUse[]): Promise<void>;
}

export class KeyUses {
  readonly #store: KeyUseStore;
  readonly #keysMax: number;
  readonly #uses = new Map<string, RecordedUse>();
  #onFailed: (error: unknown) => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;

  constructor(store: KeyUseStore, keysMax = API_KEYS_CACHED_MAX) {
    this.#store = store;
    this.#keysMax = keysMax;
  }

  note({ apiKeyId, ...owner }: ApiKeyOwner): void {
    const byPreviousSecret = owner.byPreviousSecret === true;
    const name = byPreviousSecret ? `${apiKeyId} previous` : apiKeyId;
    const usedAtMs = performance.now();
    const recorded = this.#uses.get(name);
    if (recorded !== undefined) {
      recorded.usedAtMs = usedAtMs;
      return;
    }
    this.#uses.set(name, { apiKeyId, byPreviousSecret, usedAtMs, writtenAtMs: undefined });
    forgetOldest(this.#uses, this.#keysMax);
  }

  /** @param onFailed gets the error of each failed batch, which is retried */
  start(onFailed: (error: unknown) => void): void {
    this.#onFailed = onFailed;
    this.#timer = setInterval(() => void this.write(), CHECK_INTERVAL_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await this.write(0);
  }

  /** Writes due uses, one batch at a time. Never rejects. */
  async write(intervalMs = WRITE_INTERVAL_MS): Promise<void> {
    this.#writing ??= this.#write(intervalMs).finally(() => {
      this.#writing = undefined;
    });
    await this.#writing;
  }

  async #write(intervalMs: number): Promise<void> {
    const nowMs = performance.now();
    const due: RecordedUse[] = [];
    for (const [name, use] of this.#uses) {
      const { usedAtMs, writtenAtMs } = use;
      if (writtenAtMs !== undefined && nowMs - writtenAtMs < intervalMs) continue;
      if (writtenAtMs === undefined || usedAtMs > writtenAtMs) due.push(use);
      else this.#uses.delete(name);
    }
    if (due.length === 0) return;
    const uses = due.map(({ apiKeyId, byPreviousSecret, usedAtMs }) => {
      return { apiKeyId, byPreviousSecret, ageMs: nowMs - usedAtMs };
    });
    try {
      await this.#store.noteUses(uses);
      for (const use of due) use.writtenAtMs = nowMs;
    } catch (error) {
      this.#onFailed(error);
    }
  }
}

export interface KeyUse {
  readonly apiKeyId: string;
  readonly byPreviousSecret: boolean;
  readonly ageMs: number;
}

/** Uses per statement. */
const USES_MAX = 100;

/** Does not replace a later time in the row. */
export async function writeKeyUses(database: Database, uses: readonly KeyUse[]): Promise<void> {
  const ofPrevious = uses.filter(use => use.byPreviousSecret);
  // The key's own column has the uses of both secrets.
  for (const [column, some] of [
    ['last_used_at', uses],
    ['previous_last_used_at', ofPrevious],
  ] as const) {
    for (let from = 0; from < some.length; from += USES_MAX) {
      await writeBatch(database, column, some.slice(from, from + USES_MAX));
    }
  }
}

async function writeBatch(
  database: Database,
  column: 'last_used_at' | 'previous_last_used_at',
  uses: readonly KeyUse[],
): Promise<void> {
  const ageMs = new Map<string, number>();
  for (const use of uses) {
    ageMs.set(use.apiKeyId, Math.min(use.ageMs, ageMs.get(use.apiKeyId) ?? use.ageMs));
  }
  const cases = [...ageMs].map(
    ([id, age]) => sql`when ${id} then ${database.nowMs} - ${Math.max(0, Math.round(age))}`,
  );
  const usedAt = sql<number>`case ${sql.ref('id')} ${sql.join(cases, sql` `)} end`;
  await query(database, db =>
    db
      .updateTable('api_keys')
      .set({ [column]: usedAt })
      .where('id', 'in', [...ageMs.keys()])
      .where(eb => eb.or([eb(column, 'is', null), eb(column, '<', usedAt)]))
      .execute(),
  );
}
