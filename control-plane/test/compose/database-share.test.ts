/**
 * A whole replica with four connections: an account whose transactions all wait for one row holds
 * no more of them than its share, and the others are answered meanwhile. SQLite has no such row:
 * one connection writes, and nobody holds it while it waits.
 */
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import { skipReason } from '../../../test/support/database.ts';
import { until } from '../services/dispatch/harness.ts';
import { type Caller, pictureBody, Replicas, type RestAnswer } from '../support/replicas.ts';

const JOBS = '/v1/matting/jobs';
const BURST = 40;
const SHARE = 2;
/** InnoDB answers from the same copy of its transactions for as long as it is asked more often. */
const INNODB_TRX_REFRESH_MS = 200;

describe('the connections of a replica on mysql', { skip: skipReason('mysql') }, () => {
  const replicas = Replicas.use('mysql', {
    replicas: 1,
    databaseUrl: async url => `${url}${url.includes('?') ? '&' : '?'}connection-limit=4`,
  });
  let hostile: Caller;
  let good: Caller;

  before(async () => {
    await replicas.addNode();
    hostile = await replicas.createCaller(1000);
    good = await replicas.createCaller(100);
  });

  it('answers others while an account’s submissions wait for its row', async () => {
    const burst: Promise<RestAnswer>[] = [];
    let answered = 0;
    await replicas.database.kysely.transaction().execute(async lock => {
      await lock
        .selectFrom('accounts')
        .select('id')
        .where('id', '=', hostile.accountId)
        .forUpdate()
        .execute();
      for (let count = 0; count < BURST; count += 1) {
        const answer = replicas.post(hostile, pictureBody(), { path: JOBS });
        void answer.then(() => {
          answered += 1;
        });
        burst.push(answer);
      }
      const waiting = async () => {
        await delay(INNODB_TRX_REFRESH_MS);
        const { rows } = await sql<{ n: number }>`select count(*) as n
          from information_schema.innodb_trx where trx_state = 'LOCK WAIT'`.execute(
          replicas.database.kysely,
        );
        return Number(rows[0]?.n) >= SHARE;
      };
      await until(waiting, 'its submissions to wait for the row');
      const made = await replicas.post(good, pictureBody());
      assert.equal(made.status, 200, JSON.stringify(made.body));
      const read = await replicas.get(good, `${JOBS}/${made.body.job_id}`);
      assert.equal(read.status, 200, JSON.stringify(read.body));
      assert.equal(answered, 0, 'the row is locked, and theirs came first');
    });
    for (const { status, body } of await Promise.all(burst)) {
      assert.equal(status, 202, JSON.stringify(body));
    }
  });
});
