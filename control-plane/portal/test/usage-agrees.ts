import assert from 'node:assert/strict';
import type { Database } from '@matting/database/database.ts';
import { dayOf } from '../usage/usage-store.ts';

/**
 * Compares the rows of usage with the ledger's settlements and charges. @param accountId absent:
 * all
 */
export async function assertUsageAgrees(database: Database, accountId?: string): Promise<void> {
  const days = await database.kysely
    .selectFrom('usage_days')
    .selectAll()
    .$if(accountId !== undefined, select => select.where('account_id', '=', accountId!))
    .execute();
  const used = new Tally();
  for (const row of days) {
    if (row.outcome === 'corrected') {
      assert.equal(row.credits, 0);
      continue;
    }
    used.add([row.account_id, row.day, row.outcome], row.images, row.credits);
    assert.equal(row.credits, row.outcome === 'succeeded' ? row.images : 0);
  }
  const entries = await database.kysely
    .selectFrom('ledger_entries')
    .selectAll()
    .where('slot', '=', 'settle')
    .$if(accountId !== undefined, select => select.where('account_id', '=', accountId!))
    .execute();
  const settled = new Tally();
  for (const { account_id, created_at, kind, amount } of entries) {
    const outcome = kind === 'charge' ? 'succeeded' : 'failed';
    settled.add([account_id, dayOf(created_at), outcome], 1, kind === 'charge' ? amount : 0);
  }
  assert.deepEqual(used.sorted(), settled.sorted());
}

class Tally {
  readonly #sums = new Map<string, { images: number; credits: number }>();

  add(name: readonly unknown[], images: number, credits: number): void {
    const before = this.#sums.get(name.join(' ')) ?? { images: 0, credits: 0 };
    this.#sums.set(name.join(' '), {
      images: before.images + images,
      credits: before.credits + credits,
    });
  }

  sorted(): unknown[] {
    return [...this.#sums].sort(([one], [other]) => (one < other ? -1 : 1));
  }
}
