/** The ledger as CSV: in bounded pages without a gap, and no more exports at once than places. */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import {
  csvLine,
  EXPORT_READER_MS_MAX,
  EXPORTS_AT_ONCE_MAX,
  type LedgerFilter,
  LedgerHistory,
} from '../../../src/services/sales/ledger-history.ts';
import { fundedAccount, useStores } from '../../store/fixtures.ts';

const ALL: LedgerFilter = { kind: undefined, from: undefined, to: undefined };

describe('an export of the ledger', () => {
  const { stores } = useStores();
  let history: LedgerHistory;
  before(() => {
    history = new LedgerHistory(stores.ledger, { exportPageRows: 3 });
  });

  async function linesOf(account: string): Promise<string[]> {
    const parts: string[] = [];
    for await (const part of history.export(account, ALL).lines) parts.push(part);
    return parts.join('').split('\r\n');
  }

  it('has every entry once, however many statements it takes', async () => {
    for (const grants of [0, 2, 3, 7]) {
      const account = await fundedAccount(stores, 0);
      for (let index = 0; index < grants; index += 1) {
        await stores.ledger.grant(account, 1 + index, `grant ${index}`);
      }
      const [head, ...rows] = await linesOf(account);
      assert.equal(head, '"time","kind","credits","reference"');
      assert.equal(rows.pop(), '');
      const amounts = rows.map(row => Number(row.split(',')[2])).sort((a, b) => a - b);
      assert.deepEqual(
        amounts,
        Array.from({ length: grants }, (_, index) => 1 + index),
      );
    }
  });

  it('is one of an account and a few of all, until its reader has it or leaves', async () => {
    const codeOf = (account: string) => {
      try {
        return history.export(account, ALL);
      } catch (error) {
        return (error as { code: string }).code;
      }
    };
    const accounts = [];
    for (let index = 0; index <= EXPORTS_AT_ONCE_MAX; index += 1) {
      accounts.push(await fundedAccount(stores, 1));
    }
    const [one = '', ...others] = accounts;
    const left = history.export(one, ALL);
    assert.equal(codeOf(one), 'RATE_LIMITED');
    const begun = others.slice(1).map(account => history.export(account, ALL));
    assert.equal(codeOf(others[0] ?? ''), 'SERVICE_UNAVAILABLE');
    // One reader leaves before the first line, another after it, the last reads all.
    left.end();
    left.end();
    const [second, third, fourth] = begun;
    await second?.lines.next();
    await second?.lines.return();
    for await (const line of third?.lines ?? []) assert.ok(line);
    fourth?.end();
    for (const account of accounts.slice(0, EXPORTS_AT_ONCE_MAX)) {
      assert.equal(typeof codeOf(account), 'object');
    }
    assert.equal(codeOf(one), 'RATE_LIMITED');
  });
});

describe('exports whose readers are late', () => {
  const { stores } = useStores();

  it('give their places to those of other accounts, the latest first', async () => {
    let nowMs = 0;
    const history = new LedgerHistory(stores.ledger, { exportPageRows: 1, clockMs: () => nowMs });
    const begin = async () => {
      const account = await fundedAccount(stores, 1);
      await stores.ledger.grant(account, 1, 'another');
      return { account, ...history.export(account, ALL) };
    };
    const begun = [];
    for (let count = 0; count < EXPORTS_AT_ONCE_MAX; count += 1) {
      begun.push(await begin());
      // Each has taken its first line, and asks for no other.
      await begun.at(-1)?.lines.next();
      nowMs += 1;
    }
    nowMs = EXPORT_READER_MS_MAX - 1;
    await assert.rejects(begin(), { code: 'SERVICE_UNAVAILABLE' });
    // The first goes on reading in time: the second is the latest.
    await begun[0]?.lines.next();
    nowMs = EXPORT_READER_MS_MAX + 1;
    const newcomer = await begin();
    const left = begun[1];
    await assert.rejects(async () => left?.lines.next(), /late/);
    for (const { lines } of [...begun.filter(one => one !== left), newcomer]) {
      for await (const line of lines) assert.ok(line);
    }
    // What was broken off holds no place, and takes none of its account's next.
    history.export(left?.account ?? '', ALL);
    left?.end();
    assert.throws(() => history.export(left?.account ?? '', ALL), { code: 'RATE_LIMITED' });
  });
});

describe('a line of CSV', () => {
  it('quotes text, keeps numbers, and begins no cell like a formula', () => {
    assert.equal(csvLine(['a"b', 7, 'x,y\nz']), '"a""b",7,"x,y\nz"\r\n');
    const wide = ['＝1＋1', '＋1', '－1', '＠SUM(A1)'];
    for (const text of ['=1+1', '+1', '-1', '@SUM(A1)', '\t=1', '\r=1', '\n=1', ...wide]) {
      assert.equal(csvLine([text]), `"'${text}"\r\n`);
    }
    assert.equal(csvLine([-1]), '-1\r\n');
  });
});
