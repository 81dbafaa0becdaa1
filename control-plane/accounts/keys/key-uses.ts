/**
 * Records in memory when keys were last used, and writes it in batches outside of requests. A crash
 * loses some; the next use records them again.
 */

import { type Database, query } from '@matting/database/database.ts';
import { forgetOldest } from '@matting/program/caches.ts';
import { sql } from 'kysely';
import { API_KEYS_REMEMBERED_MAX, type ApiKeyOwner } from './known-keys.ts';

/** How often a constantly used key is written. */
const WRITE_EVERY_MS = 60_000;
/** Longest delay of a due write. */
const LOOK_EVERY_MS = 5000;

interface Noted {
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
  readonly #noted = new Map<string, Noted>();
  #onFailed: (error: unknown) => void = () => undefined;
  #timer: NodeJS.Timeout | undefined;
  #writing: Promise<void> | undefined;

  constructor(store: KeyUseStore, keysMax = API_KEYS_REMEMBERED_MAX) {
    this.#store = store;
    this.#keysMax = keysMax;
  }

  note({ apiKeyId, ...owner }: ApiKeyOwner): void {
    const byPreviousSecret = owner.byPreviousSecret === true;
    const name = byPreviousSecret ? `${apiKeyId} previous` : apiKeyId;
    const usedAtMs = performance.now();
    const known = this.#noted.get(name);
    if (known !== undefined) {
      known.usedAtMs = usedAtMs;
      return;
    }
    this.#noted.set(name, { apiKeyId, byPreviousSecret, usedAtMs, writtenAtMs: undefined });
    forgetOldest(this.#noted, this.#keysMax);
  }

  /** @param onFailed called for each failed batch, which is retried */
  start(onFailed: (error: unknown) => void): void {
    this.#onFailed = onFailed;
    this.#timer = setInterval(() => void this.write(), LOOK_EVERY_MS);
    this.#timer.unref();
  }

  async stop(): Promise<void> {
    clearInterval(this.#timer);
    await this.#writing;
    await this.write(0);
  }

  /** Writes due uses, one batch at a time. Never rejects. */
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

export interface KeyUse {
  readonly apiKeyId: string;
  readonly byPreviousSecret: boolean;
  readonly ageMs: number;
}

/** Uses per statement. */
const USES_MAX = 100;

/** Never replaces a later time. */
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
