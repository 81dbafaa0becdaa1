/** The rate of an account over whole control planes that share a database. */
import assert from 'node:assert/strict';
import { before, it } from 'node:test';
import { describeOnDatabases } from '../../../test/support/database.ts';
import { RATE_WINDOW_MS } from '../../src/domain/rate-quota.ts';
import { type Caller, Replicas } from '../support/replicas.ts';

const LIMIT = 90;
const BLOCK = 2;
/** What is left of a minute then is more than the requests below take. */
const EARLY_MS = 50_000;

describeOnDatabases('two replicas', dialect => {
  const replicas = Replicas.use(dialect, {
    replicas: 2,
    env: { MATTING_SUBMISSIONS_PER_MINUTE: `${LIMIT}`, MATTING_READS_PER_MINUTE: `${LIMIT}` },
  });
  let caller: Caller;

  before(async () => {
    caller = await replicas.createCaller(5);
  });

  it('let the limit through, and at most a block a replica more', async () => {
    const second = await replicas.addKey(caller.accountId);
    while ((await replicas.stores.rateQuotas.nowMs()) % RATE_WINDOW_MS > EARLY_MS) {
      await new Promise(resolve => setTimeout(resolve, 100));
    }
    // Both keys of the account, both replicas, at once; what is wrong with the body is counted.
    const sent = Array.from({ length: 2 * LIMIT }, (_, index) =>
      replicas.post(index % 3 === 0 ? second : caller, {}, { replica: index % 2 }),
    );
    const answers = await Promise.all(sent);
    const statuses = answers.map(answer => answer.status);
    assert.deepEqual([...new Set(statuses)].sort(), [400, 429]);
    const passed = statuses.filter(status => status === 400).length;
    assert.ok(passed >= LIMIT - BLOCK && passed <= LIMIT + 2 * BLOCK, `${passed} of ${LIMIT}`);

    // From here on every replica knows that nothing is left, but for what it leased itself.
    for (const replica of [0, 1]) {
      let answer = await replicas.post(caller, {}, { replica });
      for (let left = BLOCK; answer.status !== 429 && left > 0; left -= 1) {
        answer = await replicas.post(caller, {}, { replica });
      }
      assert.equal(answer.status, 429);
      assert.equal(answer.body.code, 'RATE_LIMITED');
      assert.ok(Number(answer.headers.get('retry-after')) <= 60);
      assert.match(answer.headers.get('ratelimit') ?? '', /^"submissions";r=0;t=\d+$/);
    }
    // Reads are another count.
    const read = await replicas.get(caller, '/v1/account');
    assert.equal(read.status, 200);
    assert.deepEqual(read.body, { credits: { available: 5, reserved: 0 } });
  });
});
