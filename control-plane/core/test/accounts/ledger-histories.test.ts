/**
 * Histories of two replicas on one account. A failing run prints the shortest; MATTING_TEST_SEED
 * changes them.
 */
import assert from 'node:assert/strict';
import type { Database } from '@matting/database/database.ts';
import { addTo } from '@matting/database/test/rows.ts';
import { INTERRUPTED, tapped } from '@matting/database/test/tapped-database.ts';
import { at } from '@matting/test-support/at.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { auditLedger } from '../../audit/ledger-audit.ts';
import { assertBalanced, HOUR_MS, onStores, storesOn } from '../fixtures.ts';
import { HISTORY, operation, World } from '../ledger-world.ts';

const test = ava.serial;

const RANGES = { accountsMax: 2, entriesMax: 3, jobsMax: 2 };
const CREDITS = 40;

const step = fc.record({
  operations: fc.array(operation, { minLength: 1, maxLength: 5 }),
  audits: fc.array(
    fc.record({
      act: fc.constantFrom('audit' as const, 'kill' as const),
      replica: fc.nat(1),
      pick: fc.nat(50),
    }),
    { maxLength: 2 },
  ),
  hours: fc.constantFrom(0, 0, 7, 31),
});
type Audit = Readonly<{ act: 'audit' | 'kill'; replica: number; pick: number }>;

const breaking = fc.record({
  what: fc.constantFrom('balance', 'entry', 'kind', 'job'),
  pick: fc.nat(50),
});
type Breaking = typeof breaking extends fc.Arbitrary<infer T> ? T : never;

class Audited {
  readonly #databases: readonly Database[];
  readonly #accountId: string;

  constructor(databases: readonly Database[], accountId: string) {
    this.#databases = databases;
    this.#accountId = accountId;
  }

  perform({ act, replica, pick }: Audit): Promise<void> {
    if (act === 'kill') return this.#auditKilled(replica, pick);
    return this.assertSound(replica);
  }

  async assertSound(replica = 0): Promise<void> {
    assert.deepEqual(await this.audit(replica), []);
  }

  async audit(replica = 0): Promise<string[]> {
    const options = { accountId: this.#accountId };
    const { problems } = await auditLedger(at(this.#databases, replica), options, RANGES);
    return problems.map(({ problem }) => problem);
  }

  async #auditKilled(replica: number, pick: number): Promise<void> {
    let statements = 0;
    const dying = tapped(at(this.#databases, replica), () => {
      statements += 1;
      if (statements > pick) throw INTERRUPTED;
    });
    try {
      await auditLedger(dying, { accountId: this.#accountId }, RANGES);
    } catch (error) {
      assert.equal(error, INTERRUPTED);
    }
  }

  async pass(hours: number): Promise<void> {
    if (hours === 0) return;
    const { kysely } = at(this.#databases, 0);
    const byMs = hours * HOUR_MS;
    await sql`update ledger_entries set created_at = created_at - ${byMs}
      where account_id = ${this.#accountId}`.execute(kysely);
  }

  /** @returns false: there is nothing of that kind to break. */
  async break({ what, pick }: Breaking): Promise<boolean> {
    const { kysely } = at(this.#databases, 0);
    const picked = <T>(rows: readonly T[]): T | undefined => rows[pick % rows.length];
    const entries = await kysely
      .selectFrom('ledger_entries')
      .selectAll()
      .where('account_id', '=', this.#accountId)
      .orderBy('id')
      .execute();
    switch (what) {
      case 'balance':
        await addTo(kysely, 'accounts', { id: this.#accountId }, { available: 1 });
        return true;
      case 'entry': {
        const entry = picked(entries);
        assert.ok(entry, 'an account begins with a grant');
        await kysely.deleteFrom('ledger_entries').where('id', '=', entry.id).execute();
        return true;
      }
      case 'kind': {
        const end = picked(entries.filter(({ slot }) => slot === 'settle'));
        if (end === undefined) return false;
        const kind = end.kind === 'charge' ? 'release' : 'charge';
        await kysely.updateTable('ledger_entries').set({ kind }).where('id', '=', end.id).execute();
        return true;
      }
      case 'job': {
        const jobs = kysely
          .selectFrom('jobs')
          .where('account_id', '=', this.#accountId)
          .where('finished_at', 'is', null);
        const id = picked(await jobs.select('id').orderBy('id').execute())?.id;
        if (id === undefined) return false;
        await kysely.deleteFrom('jobs').where('id', '=', id).execute();
        return true;
      }
    }
  }
}

onStores(test, 'the ledger under two replicas', (test, { dialect, databases }) => {
  let replicas: Database[];
  test.before(async () => {
    replicas = [await databases.open(), await databases.open()];
  });

  test('holds after every step of random histories', async t => {
    const property = fc.asyncProperty(HISTORY, fc.nat(5), async (steps, credits) => {
      const world = await World.create(replicas, credits, { jobsInFlightMax: 3 });
      for (const step of steps) {
        await Promise.all(step.map(each => world.perform(each)));
        await world.assertInvariants();
      }
    });
    await t.notThrowsAsync(
      fc.assert(property, { numRuns: dialect === 'sqlite' ? 30 : 10, endOnFailure: true }),
    );
    await t.notThrowsAsync(assertBalanced(storesOn(at(replicas, 0))));
  });

  test('an audit beside running jobs finds nothing in a sound ledger, and the fault in a broken one', async t => {
    let broken = 0;
    const property = fc.asyncProperty(
      fc.array(step, { minLength: 3, maxLength: 10, size: 'max' }),
      breaking,
      async (steps, broke) => {
        const world = await World.create(replicas, CREDITS);
        const audited = new Audited(replicas, world.account);
        for (const { operations, audits, hours } of steps) {
          await Promise.all([
            ...operations.map(one => world.perform(one)),
            ...audits.map(one => audited.perform(one)),
          ]);
          await audited.pass(hours);
        }
        await audited.assertSound();
        if (!(await audited.break(broke))) return;
        broken += 1;
        assert.notDeepEqual(await audited.audit(), []);
      },
    );
    const options = { numRuns: dialect === 'sqlite' ? 20 : 10, endOnFailure: true };
    await t.notThrowsAsync(fc.assert(property, options));
    t.true(broken > 3, `${broken} were broken`);
  });
});
