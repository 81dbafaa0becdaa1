/**
 * Audits in the middle of everything: random histories of grants, submissions and completions by
 * two replicas, time that passes, audits of either kind beside them, some killed half way, with no
 * margin between what they close and the present. None ever says that something is wrong, whatever
 * is closed is right, and what is then broken is found by the kind that says it finds it.
 */
import assert from 'node:assert/strict';
import ava from 'ava';
import { sql } from 'kysely';
import { at } from '../../../../test/support/at.ts';
import { fc } from '../../../../test/support/property-tests.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import type { Claim } from '../../../src/store/jobs/job-lease.ts';
import { auditLedger } from '../../../src/store/ledger/ledger-audit.ts';
import { LEDGER_PAGE_ROWS } from '../../../src/store/ledger/ledger-pages.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { INTERRUPTED, tapped } from '../database/tapped-database.ts';
import {
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  onStores,
  resultOf,
  running,
  storesOn,
} from '../fixtures.ts';

const test = ava.serial;

const TUNING = { pageRows: 2, spanEntriesMax: 3, closeMarginMs: 0 };
/** Pages within the two seconds that members' clocks may differ by would be waited for. */
const tuningOf = ({ engine }: Database) =>
  engine.members === 'one' ? TUNING : { ...TUNING, pageRows: LEDGER_PAGE_ROWS };
const CREDITS = 40;

const action = fc.record({
  act: fc.constantFrom(
    'start',
    'start',
    'succeed',
    'fail',
    'grant',
    'revoke',
    'audit',
    'full',
    'kill',
  ),
  replica: fc.nat(1),
  pick: fc.nat(50),
});
type Action = typeof action extends fc.Arbitrary<infer T> ? T : never;
/** What happens at the same time; then time passes. */
const step = fc.record({
  actions: fc.array(action, { minLength: 1, maxLength: 5 }),
  hours: fc.constantFrom(0, 0, 7, 31),
});

const breaking = fc.record({
  what: fc.constantFrom('balance', 'entry', 'kind', 'checkpoint', 'job'),
  pick: fc.nat(50),
});
type Breaking = typeof breaking extends fc.Arbitrary<infer T> ? T : never;

class History {
  readonly #databases: readonly Database[];
  readonly #replicas: readonly Stores[];
  readonly #accountId: string;
  readonly #claims: Claim[] = [];

  constructor(databases: readonly Database[], accountId: string) {
    this.#databases = databases;
    this.#replicas = databases.map(database => storesOn(database));
    this.#accountId = accountId;
  }

  async perform({ act, replica, pick }: Action): Promise<void> {
    const stores = at(this.#replicas, replica);
    const { jobs, ledger } = stores;
    switch (act) {
      case 'start': {
        const { claim } = await running(stores, newJob(this.#accountId));
        this.#claims.push(claim);
        return;
      }
      case 'succeed':
      case 'fail': {
        const claim = this.#claims.splice(pick % Math.max(1, this.#claims.length), 1)[0];
        if (claim === undefined) return;
        if (act === 'fail') assert.ok(await jobs.fail(claim, IMAGE_FAULT));
        else assert.ok(await jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
        return;
      }
      case 'grant':
        await ledger.grant(this.#accountId, 1 + pick, `grant ${pick}`);
        return;
      case 'revoke':
        await ledger.revoke(this.#accountId, 1, `revoke ${pick}`);
        return;
      case 'audit':
        return this.assertSound('incremental', replica);
      case 'full':
        return this.assertSound('full', replica);
      case 'kill':
        return this.#auditKilled(replica, pick);
    }
  }

  async assertSound(kind: 'incremental' | 'full', replica = 0): Promise<void> {
    assert.deepEqual(await this.audit(kind, replica), []);
  }

  async audit(kind: 'incremental' | 'full', replica = 0): Promise<string[]> {
    const options = { kind, accountId: this.#accountId };
    const database = at(this.#databases, replica);
    const { problems } = await auditLedger(database, options, tuningOf(database));
    return problems.map(({ problem }) => problem);
  }

  async #auditKilled(replica: number, pick: number): Promise<void> {
    let statements = 0;
    const dying = tapped(at(this.#databases, replica), () => {
      statements += 1;
      if (statements > pick) throw INTERRUPTED;
    });
    try {
      await auditLedger(dying, { accountId: this.#accountId }, tuningOf(dying));
    } catch (error) {
      assert.equal(error, INTERRUPTED);
    }
  }

  /** Everything is that much older now. */
  async pass(hours: number): Promise<void> {
    if (hours === 0) return;
    const { kysely } = at(this.#databases, 0);
    const byMs = hours * HOUR_MS;
    for (const [table, column] of [
      ['ledger_entries', 'created_at'],
      ['ledger_checkpoints', 'closed_to'],
    ] as const) {
      await sql`update ${sql.table(table)} set ${sql.ref(column)} = ${sql.ref(column)} - ${byMs}
        where account_id = ${this.#accountId}`.execute(kysely);
    }
  }

  /** Each checkpoint is the sum of what is before it. */
  async assertCheckpoints(): Promise<void> {
    const { kysely } = at(this.#databases, 0);
    const { rows } = await sql<{ wrong: number }>`select closed_to as wrong
      from ledger_checkpoints c where account_id = ${this.#accountId} and (
        entries <> (select count(*) from ledger_entries e where e.account_id = c.account_id
          and e.created_at < c.closed_to)
        or granted - revoked <> (select sum(case kind when 'grant' then amount when 'revoke'
          then -amount else 0 end) from ledger_entries e where e.account_id = c.account_id
          and e.created_at < c.closed_to))`.execute(kysely);
    assert.deepEqual(rows, []);
  }

  /** @returns which kinds must find it; undefined: there is nothing of the sort to break. */
  async break({ what, pick }: Breaking): Promise<'both' | 'full' | undefined> {
    const { kysely } = at(this.#databases, 0);
    const picked = <T>(rows: readonly T[]): T | undefined => rows[pick % rows.length];
    const entries = await kysely
      .selectFrom('ledger_entries')
      .selectAll()
      .where('account_id', '=', this.#accountId)
      .orderBy('id')
      .execute();
    const closed = await kysely
      .selectFrom('ledger_checkpoints')
      .select('closed_to')
      .where('account_id', '=', this.#accountId)
      .orderBy('closed_to')
      .execute();
    const last = closed.at(-1)?.closed_to ?? 0;
    switch (what) {
      case 'balance':
        await kysely
          .updateTable('accounts')
          .set(eb => ({ available: eb('available', '+', 1) }))
          .where('id', '=', this.#accountId)
          .execute();
        return 'both';
      case 'entry': {
        const entry = picked(entries);
        assert.ok(entry, 'an account begins with a grant');
        await kysely.deleteFrom('ledger_entries').where('id', '=', entry.id).execute();
        return entry.created_at >= last ? 'both' : 'full';
      }
      case 'kind': {
        const end = picked(entries.filter(({ slot }) => slot === 'settle'));
        if (end === undefined) return undefined;
        const kind = end.kind === 'charge' ? 'release' : 'charge';
        await kysely.updateTable('ledger_entries').set({ kind }).where('id', '=', end.id).execute();
        return end.created_at >= last ? 'both' : 'full';
      }
      case 'checkpoint': {
        if (closed.length === 0) return undefined;
        const closedTo = at(closed, pick % closed.length).closed_to;
        await kysely
          .updateTable('ledger_checkpoints')
          .set(eb => ({ reserved: eb('reserved', '+', 1) }))
          .where('account_id', '=', this.#accountId)
          .where('closed_to', '=', closedTo)
          .execute();
        return closedTo === last ? 'both' : 'full';
      }
      case 'job': {
        const id = this.#claims[pick % Math.max(1, this.#claims.length)]?.jobId;
        if (id === undefined) return undefined;
        await kysely.deleteFrom('jobs').where('id', '=', id).execute();
        return 'both';
      }
    }
  }
}

onStores(test, 'audits beside two replicas', (test, { dialect, databases }) => {
  let replicas: Database[];
  test.before(async () => {
    replicas = [await databases.open(), await databases.open()];
  });

  test('find nothing in a sound ledger, and what is broken in a broken one', async t => {
    let broken = 0;
    const property = fc.asyncProperty(
      fc.array(step, { minLength: 3, maxLength: 10, size: 'max' }),
      breaking,
      async (steps, broke) => {
        const accountId = await fundedAccount(storesOn(at(replicas, 0)), CREDITS);
        const history = new History(replicas, accountId);
        for (const { actions, hours } of steps) {
          await Promise.all(actions.map(one => history.perform(one)));
          await history.pass(hours);
        }
        await history.assertCheckpoints();
        await history.assertSound('full');
        await history.assertSound('incremental');
        const finders = await history.break(broke);
        if (finders === undefined) return;
        broken += 1;
        assert.notDeepEqual(await history.audit('full'), []);
        if (finders === 'both') assert.notDeepEqual(await history.audit('incremental'), []);
      },
    );
    const options = { numRuns: dialect === 'sqlite' ? 20 : 10, endOnFailure: true };
    await t.notThrowsAsync(fc.assert(property, options));
    t.true(broken > 3, `${broken} were broken`);
  });
});
