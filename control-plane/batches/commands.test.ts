import assert from 'node:assert/strict';
import { fundedCaller } from '@matting/core/test/fixtures.ts';
import { cliWith } from '@matting/core/test/support/cli.ts';
import ava from 'ava';
import { batches } from './batches.ts';
import { BATCH_FIXTURES, newBatch } from './test/fixtures.ts';

const runCli = cliWith([batches]);

BATCH_FIXTURES.onStoresInCi(ava.serial, 'the command line', (test, { databases, stores }) => {
  test('cancels a batch, once, and says what is left of it', async t => {
    const run = (...args: string[]) =>
      runCli({ MATTING_DATABASE_URL: databases.url() }, 'batches', 'cancel', ...args);
    const caller = await fundedCaller(stores, 2);
    const { accountId, apiKeyId } = caller;
    const batch = newBatch(caller, 2);
    await stores.batches.submitBatch(batch);
    const first = await run(batch.id);
    assert.equal(first.code, 0, first.err);
    t.regex(first.out, /2 images/);
    const again = await run(batch.id.toUpperCase(), '--json');
    const { cancelled_at, created_at, ...view } = JSON.parse(again.out);
    t.true(cancelled_at >= created_at);
    const counts = { waiting: 2, queued: 0, processing: 0, succeeded: 0, failed: 0, expired: 0 };
    const of = { batch_id: batch.id, account_id: accountId, key: `mk_${apiKeyId}` };
    t.deepEqual(view, { ...of, status: 'cancelled', finished_at: null, counts });
    const log = await stores.audit.list(accountId, { limit: 9 });
    t.deepEqual(
      log.map(({ action, subject, actorKind }) => [action, subject, actorKind]),
      [['batch.cancelled', batch.id, 'operator']],
    );
    const unknown = await run('x');
    t.is(unknown.code, 1);
    t.regex(unknown.err, /no batch/);
  });
});
