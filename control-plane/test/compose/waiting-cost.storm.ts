/** Database load of waiting callers, by the server's own count of statements. */
import { setTimeout as delay } from 'node:timers/promises';
import { until } from '@matting/core/test/harness.ts';
import { pictureBody } from '@matting/core/test/support/replicas.ts';
import { cutOutAfter } from '@matting/nodes/test/scripted-exchange.ts';
import { skipReason } from '@matting/test-support/database.ts';
import ava from 'ava';
import { sql } from 'kysely';
import { Replicas } from '../programs.ts';

const test = ava.serial;

// The test has a server of its own: a shared server counts everybody's statements.
delete process.env.MATTING_TEST_DATABASE_URL;

const CALLERS = 200;
const STATEMENTS_A_SECOND_MAX = 50;
const MEASURED_MS = 4000;
const POLLS_MAX = 5;

const replicas = Replicas.use(test, 'mysql', { replicas: 1 });

async function statements(): Promise<number> {
  const { rows } = await sql<{ Value: string }>`show global status like 'Questions'`.execute(
    replicas.database.kysely,
  );
  return Number(rows[0]?.Value);
}

test.runIf(skipReason('mysql') === false)(
  'cost fewer than 50 statements a second, and all are answered',
  async t => {
    const opened = Promise.withResolvers<void>();
    await replicas.addNode({
      imagesMax: 2,
      script: cutOutAfter(opened.promise),
    });
    const caller = await replicas.createCaller(CALLERS);
    const sent = Array.from({ length: CALLERS }, () => replicas.post(caller, pictureBody()));
    const open = async () =>
      (await replicas.stores.ledger.balances(caller.accountId))?.reserved === CALLERS;
    await until(open, 'the jobs');
    // The loop runs until the submissions' own statements are over: what then follows is waiting.
    let perSecond = Number.POSITIVE_INFINITY;
    for (let polls = 0; polls < POLLS_MAX && perSecond >= STATEMENTS_A_SECOND_MAX; polls += 1) {
      const startedAtMs = performance.now();
      const before = await statements();
      await delay(MEASURED_MS);
      const seconds = (performance.now() - startedAtMs) / 1000;
      perSecond = ((await statements()) - before) / seconds;
    }
    t.log(`${perSecond.toFixed(1)} statements a second`);
    t.true(perSecond > 0, 'the server counts');
    t.true(perSecond < STATEMENTS_A_SECOND_MAX, `${perSecond} statements a second`);
    opened.resolve();
    const answers = await Promise.all(sent);
    t.deepEqual(new Set(answers.map(({ status }) => status)), new Set([200]));
    t.is(new Set(answers.map(({ body }) => body.job_id)).size, CALLERS);
    const credits = await replicas.stores.ledger.balances(caller.accountId);
    t.deepEqual(credits, { available: 0, reserved: 0 });
  },
);
