/**
 * Clocks of a database's members that differ: two servers behind one address that takes turns, of
 * which one answers with a clock that is ahead.
 */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { SILENT_LOG } from '../../../../test/support/database.ts';
import { ClockWatch } from '../../../src/services/clock-watch.ts';
import { type Database, openDatabase } from '../../../src/store/database/connect.ts';
import { GALERA } from '../../../src/store/database/engines.ts';
import {
  MEMBER_CLOCKS_MS_MAX,
  MemberClocks,
  requireAgreeingClocks,
} from '../../../src/store/database/member-clocks.ts';
import { DatabasePair, pairSkipReason } from './database-pair.ts';

const AHEAD_S = 30;

describe('the clocks of members', { skip: pairSkipReason }, () => {
  let pair: DatabasePair;
  let one: Database;
  /** As a cluster whose address takes turns. */
  let several: Database;

  before(async () => {
    pair = await DatabasePair.create();
    one = await openDatabase(pair.url, { log: SILENT_LOG });
    assert.ok(one.newMember !== undefined);
    const { newMember } = one;
    let turn = 0;
    several = {
      ...one,
      engine: GALERA,
      newMember: async () => {
        const second = turn++ % 2 === 1;
        pair.proxy.leadTo((second ? pair.second : pair.first).url);
        const member = await newMember();
        // Both are on this machine and have no port.
        return { ...member, name: second ? 'second:3306' : 'first:3306' };
      },
    };
  });
  after(async () => {
    await one?.close();
    await pair?.close();
  });

  /** Sessions of the service's user on the second server begin with that clock. */
  const setAhead = (seconds: number) =>
    pair.second.set(`init_connect = 'set session timestamp = unix_timestamp(now(6)) + ${seconds}'`);

  it('agree on one machine', async () => {
    const clocks = new MemberClocks(several);
    await clocks.look();
    const compared = await clocks.look();
    assert.ok(compared !== undefined && compared.differenceMs < MEMBER_CLOCKS_MS_MAX);
    await requireAgreeingClocks(several);
  });

  it('that differ are an error at the start which names the members', async () => {
    await setAhead(AHEAD_S);
    try {
      await assert.rejects(
        requireAgreeingClocks(several),
        /the clock of second:3306 is (29|30)\.\d s ahead of first:3306's.*synchronise/,
      );
    } finally {
      await setAhead(0);
    }
  });

  it('are watched: it is said when they begin to differ, and when they agree again', async () => {
    const said: string[] = [];
    const note = (level: string) => () => said.push(level);
    const clocks = new MemberClocks(several);
    const watch = new ClockWatch({
      look: () => clocks.look(),
      log: { info: note('agree'), warn: note('warn'), error: note('differ') },
    });
    const lookAtBoth = async () => {
      await watch.look();
      await watch.look();
    };
    await lookAtBoth();
    await setAhead(AHEAD_S);
    await lookAtBoth();
    await lookAtBoth();
    const differenceMs = watch.differenceMs ?? 0;
    await setAhead(0);
    await lookAtBoth();
    assert.deepEqual(said, ['differ', 'agree']);
    assert.ok(differenceMs > (AHEAD_S - 2) * 1000, `${differenceMs} ms`);
  });

  it('are not looked at where there is one', async () => {
    assert.equal(await new MemberClocks(one).look(), undefined);
    await requireAgreeingClocks(one);
  });
});
