import { LEDGER_KINDS } from '@matting/accounts/ledger/ledger.ts';
import { type LinesFilter, readLines } from '@matting/accounts/ledger/ledger-lines.ts';
import ava from 'ava';
import { fundedAccount, newJob, onStores, submitted } from '../fixtures.ts';

const test = ava.serial;

const ALL: LinesFilter = {
  kinds: undefined,
  fromMs: 0,
  beforeMs: undefined,
  after: undefined,
  limit: 100,
};

onStores(test, 'lines of a ledger', (test, { database, stores }) => {
  /** Grants of 10 and revocations of 1 in turn, three at each instant. */
  async function account(moves: number): Promise<string> {
    const id = await fundedAccount(stores, 5);
    for (let index = 0; index < moves; index += 1) {
      const enter = index % 2 === 0 ? stores.ledger.grant : stores.ledger.revoke;
      await enter(id, index % 2 === 0 ? 10 : 1, `move-${index}`);
      await database.kysely
        .updateTable('ledger_entries')
        .set({ created_at: 1000 + Math.floor(index / 3) })
        .where('account_id', '=', id)
        .where('reference', '=', `move-${index}`)
        .execute();
    }
    await database.kysely
      .updateTable('ledger_entries')
      .set({ created_at: 1 })
      .where('account_id', '=', id)
      .where('reference', '=', 'first')
      .execute();
    return id;
  }

  test('are each the one before it and what it moved, on pages of any size', async t => {
    const id = await account(11);
    await fundedAccount(stores, 1000);
    const all = await stores.ledger.lines(id, ALL);
    t.is(all[0]?.balance, 5 + 6 * 10 - 5);
    t.is(all.at(-1)?.balance, 5);
    for (const [index, { balance }] of all.entries()) {
      const before = all[index + 1];
      const { kind, amount } = all[index]!;
      t.is(balance, (before?.balance ?? 0) + (kind === 'revoke' ? -amount : amount));
    }
    for (const limit of [1, 2, 5]) {
      const paged = [];
      for (let after: LinesFilter['after']; ; ) {
        const page = await stores.ledger.lines(id, { ...ALL, limit, after });
        if (page.length === 0) break;
        paged.push(...page);
        after = page.at(-1);
      }
      t.deepEqual(paged, all, `pages of ${limit}`);
    }
  });

  test('have their balances where only some days are asked for', async t => {
    const id = await account(11);
    const all = await stores.ledger.lines(id, ALL);
    const some = await stores.ledger.lines(id, { ...ALL, fromMs: 1001, beforeMs: 1003 });
    t.deepEqual(some, all.slice(2, 8));
    const none = await stores.ledger.lines(id, { ...ALL, fromMs: 2, beforeMs: 3 });
    t.deepEqual(none, []);
  });

  test('are moved by no reservation, and have no balance without the kinds that move it', async t => {
    const id = await fundedAccount(stores, 5);
    await submitted(stores, newJob(id));
    const whole = await stores.ledger.lines(id, { ...ALL, kinds: LEDGER_KINDS });
    t.deepEqual(whole.map(({ kind, balance }) => `${kind} ${balance}`).sort(), [
      'grant 5',
      'reserve 5',
    ]);
    const grants = await stores.ledger.lines(id, { ...ALL, kinds: ['grant'] });
    t.deepEqual(
      grants.map(({ balance }) => balance),
      [null],
    );
  });

  test('have no balance behind more entries than are read', async t => {
    const id = await account(7);
    const lines = (filter: LinesFilter) => readLines(database, id, filter, 3);
    const [first, , third, fourth] = await lines({ ...ALL, limit: 4 });
    t.is(first?.balance, 5 + 4 * 10 - 3);
    const next = (after: LinesFilter['after']) => lines({ ...ALL, after, limit: 1 });
    t.is((await next(third))[0]?.balance, fourth?.balance);
    t.is((await next(fourth))[0]?.balance, null);
  });
});
