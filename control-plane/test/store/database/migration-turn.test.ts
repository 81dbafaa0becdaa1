/**
 * The turn to migrate where get_lock keeps out nobody at another member, on one server that is
 * treated as a member: who is in keeps others out, and one that died does not for ever.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import {
  createTestDatabase,
  skipReason,
  type TestDatabase,
} from '../../../../test/support/database.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import { GALERA } from '../../../src/store/database/engines.ts';
import { inTurn, type Turn } from '../../../src/store/database/migration-turn.ts';

/** As in production, a hundred times as fast. */
const TIMING = { beatMs: 20, lookMs: 10 };

describe('the turn to migrate', { skip: skipReason('mysql') }, () => {
  let test: TestDatabase;
  let first: Database;
  let second: Database;

  before(async () => {
    test = await createTestDatabase('mysql', { migrated: false });
    first = { ...(await test.open()), engine: GALERA };
    second = { ...(await test.open()), engine: GALERA };
  });
  after(() => test.close());

  const hold = <T>(database: Database, work: (turn: Turn) => Promise<T>): Promise<T> =>
    inTurn(database, work, TIMING);
  const beat = async () => {
    const { rows } = await sql<{ beat: number }>`select beat from migration_turns`.execute(
      second.kysely,
    );
    return rows[0]?.beat ?? -1;
  };

  it('is one process’s at a time', async () => {
    let inside = 0;
    let most = 0;
    const work = async () => {
      most = Math.max(most, ++inside);
      await delay(1);
      inside -= 1;
    };
    await Promise.all(
      Array.from({ length: 6 }, (_, index) => hold(index % 2 ? first : second, work)),
    );
    assert.equal(most, 1);
  });

  it('is given back by work that fails', async () => {
    await assert.rejects(
      hold(first, async () => assert.fail('on purpose')),
      /on purpose/,
    );
    await hold(second, async () => undefined);
  });

  it('is moved on by its holder, and not taken from it', async () => {
    let entered = false;
    await hold(first, async turn => {
      const waiting = hold(second, async () => {
        entered = true;
      });
      const began = await beat();
      // Long enough for the other to take over, if nothing moved.
      while ((await beat()) < began + 15) await delay(5);
      await turn.requireHeld();
      assert.equal(entered, false);
      return { waiting };
    }).then(({ waiting }) => waiting);
    assert.equal(entered, true);
  });

  it('is taken over from one that died, who may not go on', async () => {
    const died = Promise.withResolvers<void>();
    const taken = Promise.withResolvers<void>();
    // Its process stands still, or was killed: no beat comes.
    const dead = inTurn(
      first,
      async turn => {
        died.resolve();
        await taken.promise;
        await turn.requireHeld();
      },
      { ...TIMING, beatMs: 3_600_000 },
    );
    await died.promise;
    await hold(second, async () => undefined);
    taken.resolve();
    await assert.rejects(dead, /another process has taken over/);
    await hold(second, async () => undefined);
  });

  it('is not given back by one that has it no more', async () => {
    await hold(first, async () => {
      await sql`update migration_turns set holder = 'another', beat = beat + 1`.execute(
        second.kysely,
      );
    });
    const { rows } = await sql<{ holder: string }>`select holder from migration_turns`.execute(
      second.kysely,
    );
    assert.deepEqual(rows, [{ holder: 'another' }]);
  });
});
