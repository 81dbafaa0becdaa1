/** The operator's port: its key, what it tells and changes. */
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import type { FastifyInstance } from 'fastify';
import { onDatabases, useTestDatabase } from '../../../../test/support/database.ts';
import type { Stores } from '../../../src/store/stores.ts';
import {
  assertBalanced,
  claimed,
  fundedAccount,
  IMAGE_FAULT,
  newJob,
  reread,
  resultOf,
  running,
  storesOn,
  submitted,
  useStores,
} from '../../store/fixtures.ts';
import { AUTHORIZED, appOn, ask, codeOf, KEY, listen, raw, register } from './operator-port.ts';

const test = ava.serial;

const LEASE_MS = 15_000;

function idOf(job: { readonly id: string }): string {
  return job.id;
}

onDatabases(test, "the operator's port", (test, dialect) => {
  const databases = useTestDatabase(test, dialect);
  let stores: Stores;
  let app: FastifyInstance;

  test.before(async () => {
    stores = storesOn(await databases.open());
    app = appOn(stores);
    await app.ready();
  });
  test.after.always(() => app.close());

  test('lists nodes, drains and undrains them', async t => {
    const nodeId = `node-${randomUUID()}`;
    t.is(codeOf(await ask(app, `/operator/nodes/${nodeId}/drain`, 'POST')), 'NOT_FOUND');
    t.is(codeOf(await ask(app, '/operator/nodes/n%C3%B6de')), 'NOT_FOUND');
    const bootId = await register(stores, nodeId, '10.0.0.7:50052');
    const state = async () => (await ask(app, `/operator/nodes/${nodeId}`)).json().state;
    t.is(await state(), 'live');
    const told = await ask(app, `/operator/nodes/${nodeId}/drain`, 'POST');
    t.deepEqual(told.json(), { node_id: nodeId, draining: true });
    t.is(await state(), 'draining');
    await ask(app, `/operator/nodes/${nodeId}/undrain`, 'POST');
    t.is(await state(), 'live');
    await stores.nodes.deregister(nodeId, bootId);
    t.is(await state(), 'gone');
    const { nodes } = (await ask(app, '/operator/nodes')).json();
    const found = nodes.find((node: { node_id: string }) => node.node_id === nodeId);
    t.is(found.http_address, '10.0.0.7:50052');
  });

  test('refuses questions it does not understand, naming each', async t => {
    const query = 'state=lost&limit=0&limit=1&since_hours=-1&account=&status=failed';
    const answer = await ask(app, `/operator/jobs?${query}`);
    t.is(codeOf(answer), 'INVALID_REQUEST');
    const fields = answer.json().errors.map(({ field }: { field: string }) => field);
    t.deepEqual([...new Set(fields)].sort(), [
      'account',
      'limit',
      'since_hours',
      'state',
      'status',
    ]);
    t.is(codeOf(await ask(app, '/operator/jobs?account=nobody')), 'NOT_FOUND');
  });

  test('gives long lists page by page', async t => {
    const account = await fundedAccount(stores, 3);
    const jobs = [];
    for (let i = 0; i < 3; i += 1) jobs.push((await submitted(stores, newJob(account))).id);
    const page = async (query: string) =>
      (await ask(app, `/operator/jobs?account=${account}&${query}`)).json();
    const first = await page('limit=2');
    t.is(first.jobs.length, 2);
    t.is(first.next, first.jobs[1].cursor);
    const second = await page(`limit=2&after=${first.next}`);
    t.is(second.next, null);
    const listed = [...first.jobs, ...second.jobs].map(({ job_id: id }) => id);
    t.deepEqual(listed.sort(), jobs.sort());
    for (const after of ['x', 'open-1', `open-1-${randomUUID()}-2`]) {
      const refused = await ask(app, `/operator/jobs?after=${after}`);
      t.is(codeOf(refused), 'INVALID_REQUEST');
      t.is(refused.json().errors[0].field, 'after');
    }
  });

  test('lists open jobs by their place in the queue and ended ones, the latest first', async t => {
    const account = await fundedAccount(stores, 5);
    const asynchronous = await submitted(stores, newJob(account));
    const synchronous = await submitted(stores, newJob(account, { class: 'sync' }));
    const { job: busy, claim } = await running(stores, newJob(account));
    const failed = await running(stores, newJob(account));
    await stores.jobs.fail(failed.claim, IMAGE_FAULT);
    const ids = async (query: string) => {
      const answer = await ask(app, `/operator/jobs?account=${account}&${query}`);
      t.is(answer.statusCode, 200, answer.body);
      return answer.json().jobs.map((job: { job_id: string }) => job.job_id);
    };
    t.is((await ids('state=open'))[0], synchronous.id);
    t.deepEqual((await ids('')).sort(), [synchronous, asynchronous, busy].map(idOf).sort());
    t.deepEqual(await ids('state=processing'), [busy.id]);
    t.deepEqual(await ids('state=queued&limit=1'), [synchronous.id]);
    t.deepEqual(await ids('state=failed'), [failed.job.id]);
    await stores.jobs.succeed(claim, resultOf(claim), 1000, {});
    t.deepEqual((await ids('state=final')).sort(), [busy.id, failed.job.id].sort());
    const shown = (await ask(app, `/operator/jobs/${busy.id}`)).json();
    t.is(shown.state, 'succeeded');
    // The link is the capability, the source the caller's business.
    t.false(JSON.stringify(shown).includes((await reread(stores, busy.id)).result!.token));
  });

  test('ends the lease of an open job: claimed again, its old holder fenced off', async t => {
    const account = await fundedAccount(stores, 1);
    const { job, claim } = await running(stores, newJob(account));
    const retried = await ask(app, `/operator/jobs/${job.id.toUpperCase()}/retry`, 'POST');
    t.deepEqual(retried.json(), {
      job_id: job.id,
      lease_ended: true,
      holder: claim.holder,
    });
    t.false(await stores.jobs.renew(claim, LEASE_MS));
    t.false(await stores.jobs.succeed(claim, resultOf(claim), 1000, {}));
    t.is(await stores.jobs.attemptLost(claim, true), undefined);
    const again = await claimed(stores, job, { holder: 'replica-2' });
    const taken = await reread(stores, job.id);
    t.deepEqual([taken.fence, taken.takeovers, taken.lostAttempts], [2, 0, 0]);
    t.truthy(await stores.jobs.succeed(again, resultOf(again), 1000, {}));
    await assertBalanced(stores);
  });

  test('does not change a job that no replica holds, nor one that ended', async t => {
    const account = await fundedAccount(stores, 3);
    const waiting = await submitted(stores, newJob(account));
    const retried = await ask(app, `/operator/jobs/${waiting.id}/retry`, 'POST');
    t.deepEqual(retried.json(), { job_id: waiting.id, lease_ended: false, holder: null });
    for (const end of ['succeeded', 'failed'] as const) {
      const { job, claim } = await running(stores, newJob(account));
      if (end === 'failed') await stores.jobs.fail(claim, IMAGE_FAULT);
      else await stores.jobs.succeed(claim, resultOf(claim), 1000, {});
      const before = await reread(stores, job.id);
      const answer = await ask(app, `/operator/jobs/${job.id}/retry`, 'POST');
      t.is(answer.statusCode, 409);
      t.is(codeOf(answer), 'JOB_FINAL');
      t.regex(answer.json().detail, end === 'failed' ? /returned/ : /charged/);
      const after = await reread(stores, job.id);
      t.deepEqual({ ...after, readAtMs: 0 }, { ...before, readAtMs: 0 });
    }
    for (const id of [randomUUID(), 'no-uuid']) {
      t.is(codeOf(await ask(app, `/operator/jobs/${id}/retry`, 'POST')), 'JOB_NOT_FOUND');
    }
    await assertBalanced(stores);
  });

  test('ends a lease once where it is asked for many times at once', async t => {
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account));
    await claimed(stores, job);
    const asked = Array.from({ length: 8 }, () => stores.jobs.endLease(job.id));
    const kinds = (await Promise.all(asked)).map(({ kind }) => kind);
    t.is(kinds.filter(kind => kind === 'ended').length, 1, kinds.join());
  });
});

const { stores } = useStores(test);

test("the operator's key › that is not configured leaves everything behind it off, and says so", async t => {
  const app = appOn(stores, { operatorKey: undefined });
  for (const url of ['/operator/nodes', '/operator/jobs', '/operator/nodes/n/metrics']) {
    const answer = await app.inject({ url, headers: AUTHORIZED });
    t.is(codeOf(answer), 'NOT_FOUND');
    t.regex(answer.json().detail, /MATTING_OPERATOR_KEY/);
  }
  t.is((await app.inject('/metrics')).statusCode, 200);
  await app.close();
});

test("the operator's key › that is missing, wrong or not the only one opens nothing", async t => {
  const app = appOn(stores);
  await fundedAccount(stores, 1);
  const { token } = await stores.apiKeys.create(await fundedAccount(stores, 1), 'a caller');
  const wrong = [
    {},
    { authorization: '' },
    { authorization: KEY },
    { authorization: `Basic ${KEY}` },
    { authorization: `Bearer ${KEY.slice(1)}` },
    { authorization: `Bearer ${KEY}x` },
    { authorization: `Bearer ${token}` },
  ];
  for (const headers of wrong) {
    for (const url of ['/operator/nodes', '/operator/nodes/n/info', '/operator/jobs/x']) {
      const answer = await app.inject({ url, headers });
      t.is(answer.statusCode, 401, JSON.stringify(headers));
      t.is(codeOf(answer), 'INVALID_OPERATOR_KEY');
      t.is(answer.headers['www-authenticate'], 'Bearer');
    }
  }
  const port = await listen(app);
  const twice = `Authorization: Bearer ${KEY}\r\n`.repeat(2);
  const text = await raw(port, `GET /operator/nodes HTTP/1.1\r\nHost: x\r\n${twice}\r\n`);
  t.regex(text, /^HTTP\/1.1 401 /);
  await app.close();
});

test("the operator's key › is not asked where there is nothing", async t => {
  const app = appOn(stores);
  t.is(codeOf(await ask(app, '/operator/nothing')), 'NOT_FOUND');
  t.is(codeOf(await ask(app, '/v1/account')), 'NOT_FOUND');
  const answer = await ask(app, '/operator/jobs', 'POST');
  t.is(codeOf(answer), 'METHOD_NOT_ALLOWED');
  t.is(answer.headers.allow, 'GET, HEAD');
  await app.close();
});
