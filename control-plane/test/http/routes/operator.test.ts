/** The operator's port: its key, what it tells and changes. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import type { FastifyInstance } from 'fastify';
import { describeOnDatabases, useTestDatabase } from '../../../../test/support/database.ts';
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

const LEASE_MS = 15_000;

function idOf(job: { readonly id: string }): string {
  return job.id;
}

describeOnDatabases("the operator's port", dialect => {
  const databases = useTestDatabase(dialect);
  let stores: Stores;
  let app: FastifyInstance;

  before(async () => {
    stores = storesOn(await databases.open());
    app = appOn(stores);
    await app.ready();
  });
  after(() => app.close());

  it('lists nodes, drains and undrains them', async () => {
    const nodeId = `node-${randomUUID()}`;
    assert.equal(codeOf(await ask(app, `/operator/nodes/${nodeId}/drain`, 'POST')), 'NOT_FOUND');
    assert.equal(codeOf(await ask(app, '/operator/nodes/n%C3%B6de')), 'NOT_FOUND');
    const bootId = await register(stores, nodeId, '10.0.0.7:50052');
    const state = async () => (await ask(app, `/operator/nodes/${nodeId}`)).json().state;
    assert.equal(await state(), 'live');
    const told = await ask(app, `/operator/nodes/${nodeId}/drain`, 'POST');
    assert.deepEqual(told.json(), { node_id: nodeId, draining: true });
    assert.equal(await state(), 'draining');
    await ask(app, `/operator/nodes/${nodeId}/undrain`, 'POST');
    assert.equal(await state(), 'live');
    await stores.nodes.deregister(nodeId, bootId);
    assert.equal(await state(), 'gone');
    const { nodes } = (await ask(app, '/operator/nodes')).json();
    const found = nodes.find((node: { node_id: string }) => node.node_id === nodeId);
    assert.equal(found.http_address, '10.0.0.7:50052');
  });

  it('refuses questions it does not understand, naming each', async () => {
    const query = 'state=lost&limit=0&limit=1&since_hours=-1&account=&status=failed';
    const answer = await ask(app, `/operator/jobs?${query}`);
    assert.equal(codeOf(answer), 'INVALID_REQUEST');
    const fields = answer.json().errors.map(({ field }: { field: string }) => field);
    assert.deepEqual([...new Set(fields)].sort(), [
      'account',
      'limit',
      'since_hours',
      'state',
      'status',
    ]);
    assert.equal(codeOf(await ask(app, '/operator/jobs?account=nobody')), 'NOT_FOUND');
  });

  it('gives long lists page by page', async () => {
    const account = await fundedAccount(stores, 3);
    const jobs = [];
    for (let i = 0; i < 3; i += 1) jobs.push((await submitted(stores, newJob(account))).id);
    const page = async (query: string) =>
      (await ask(app, `/operator/jobs?account=${account}&${query}`)).json();
    const first = await page('limit=2');
    assert.equal(first.jobs.length, 2);
    assert.equal(first.next, first.jobs[1].cursor);
    const second = await page(`limit=2&after=${first.next}`);
    assert.equal(second.next, null);
    const listed = [...first.jobs, ...second.jobs].map(({ job_id: id }) => id);
    assert.deepEqual(listed.sort(), jobs.sort());
    for (const after of ['x', 'open-1', `open-1-${randomUUID()}-2`]) {
      const refused = await ask(app, `/operator/jobs?after=${after}`);
      assert.equal(codeOf(refused), 'INVALID_REQUEST');
      assert.equal(refused.json().errors[0].field, 'after');
    }
  });

  it('lists open jobs by their place in the queue and ended ones, the latest first', async () => {
    const account = await fundedAccount(stores, 5);
    const asynchronous = await submitted(stores, newJob(account));
    const synchronous = await submitted(stores, newJob(account, { class: 'sync' }));
    const { job: busy, claim } = await running(stores, newJob(account));
    const failed = await running(stores, newJob(account));
    await stores.jobs.fail(failed.claim, IMAGE_FAULT);
    const ids = async (query: string) => {
      const answer = await ask(app, `/operator/jobs?account=${account}&${query}`);
      assert.equal(answer.statusCode, 200, answer.body);
      return answer.json().jobs.map((job: { job_id: string }) => job.job_id);
    };
    assert.equal((await ids('state=open'))[0], synchronous.id);
    assert.deepEqual((await ids('')).sort(), [synchronous, asynchronous, busy].map(idOf).sort());
    assert.deepEqual(await ids('state=processing'), [busy.id]);
    assert.deepEqual(await ids('state=queued&limit=1'), [synchronous.id]);
    assert.deepEqual(await ids('state=failed'), [failed.job.id]);
    await stores.jobs.succeed(claim, resultOf(claim), 1000, {});
    assert.deepEqual((await ids('state=final')).sort(), [busy.id, failed.job.id].sort());
    const shown = (await ask(app, `/operator/jobs/${busy.id}`)).json();
    assert.equal(shown.state, 'succeeded');
    // The link is the capability, the source the caller's business.
    assert.ok(!JSON.stringify(shown).includes((await reread(stores, busy.id)).result!.token));
  });

  it('ends the lease of an open job: claimed again, its old holder fenced off', async () => {
    const account = await fundedAccount(stores, 1);
    const { job, claim } = await running(stores, newJob(account));
    const retried = await ask(app, `/operator/jobs/${job.id.toUpperCase()}/retry`, 'POST');
    assert.deepEqual(retried.json(), {
      job_id: job.id,
      lease_ended: true,
      holder: claim.holder,
    });
    assert.equal(await stores.jobs.renew(claim, LEASE_MS), false);
    assert.equal(await stores.jobs.succeed(claim, resultOf(claim), 1000, {}), false);
    assert.equal(await stores.jobs.attemptLost(claim, true), undefined);
    const again = await claimed(stores, job, { holder: 'replica-2' });
    const taken = await reread(stores, job.id);
    assert.deepEqual([taken.fence, taken.takeovers, taken.lostAttempts], [2, 0, 0]);
    assert.ok(await stores.jobs.succeed(again, resultOf(again), 1000, {}));
    await assertBalanced(stores);
  });

  it('does not change a job that no replica holds, nor one that ended', async () => {
    const account = await fundedAccount(stores, 3);
    const waiting = await submitted(stores, newJob(account));
    const retried = await ask(app, `/operator/jobs/${waiting.id}/retry`, 'POST');
    assert.deepEqual(retried.json(), { job_id: waiting.id, lease_ended: false, holder: null });
    for (const end of ['succeeded', 'failed'] as const) {
      const { job, claim } = await running(stores, newJob(account));
      if (end === 'failed') await stores.jobs.fail(claim, IMAGE_FAULT);
      else await stores.jobs.succeed(claim, resultOf(claim), 1000, {});
      const before = await reread(stores, job.id);
      const answer = await ask(app, `/operator/jobs/${job.id}/retry`, 'POST');
      assert.equal(answer.statusCode, 409);
      assert.equal(codeOf(answer), 'JOB_FINAL');
      assert.match(answer.json().detail, end === 'failed' ? /returned/ : /charged/);
      const after = await reread(stores, job.id);
      assert.deepEqual({ ...after, readAtMs: 0 }, { ...before, readAtMs: 0 });
    }
    for (const id of [randomUUID(), 'no-uuid']) {
      assert.equal(codeOf(await ask(app, `/operator/jobs/${id}/retry`, 'POST')), 'JOB_NOT_FOUND');
    }
    await assertBalanced(stores);
  });

  it('ends a lease once where it is asked for many times at once', async () => {
    const account = await fundedAccount(stores, 1);
    const job = await submitted(stores, newJob(account));
    await claimed(stores, job);
    const asked = Array.from({ length: 8 }, () => stores.jobs.endLease(job.id));
    const kinds = (await Promise.all(asked)).map(({ kind }) => kind);
    assert.equal(kinds.filter(kind => kind === 'ended').length, 1, kinds.join());
  });
});

describe("the operator's key", () => {
  const { stores } = useStores();

  it('that is not configured leaves everything behind it off, and says so', async () => {
    const app = appOn(stores, { operatorKey: undefined });
    for (const url of ['/operator/nodes', '/operator/jobs', '/operator/nodes/n/metrics']) {
      const answer = await app.inject({ url, headers: AUTHORIZED });
      assert.equal(codeOf(answer), 'NOT_FOUND');
      assert.match(answer.json().detail, /MATTING_OPERATOR_KEY/);
    }
    assert.equal((await app.inject('/metrics')).statusCode, 200);
    await app.close();
  });

  it('that is missing, wrong or not the only one opens nothing', async () => {
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
        assert.equal(answer.statusCode, 401, JSON.stringify(headers));
        assert.equal(codeOf(answer), 'INVALID_OPERATOR_KEY');
        assert.equal(answer.headers['www-authenticate'], 'Bearer');
      }
    }
    const port = await listen(app);
    const twice = `Authorization: Bearer ${KEY}\r\n`.repeat(2);
    const text = await raw(port, `GET /operator/nodes HTTP/1.1\r\nHost: x\r\n${twice}\r\n`);
    assert.match(text, /^HTTP\/1.1 401 /);
    await app.close();
  });

  it('is not asked where there is nothing', async () => {
    const app = appOn(stores);
    assert.equal(codeOf(await ask(app, '/operator/nothing')), 'NOT_FOUND');
    assert.equal(codeOf(await ask(app, '/v1/account')), 'NOT_FOUND');
    const answer = await ask(app, '/operator/jobs', 'POST');
    assert.equal(codeOf(answer), 'METHOD_NOT_ALLOWED');
    assert.equal(answer.headers.allow, 'GET, HEAD');
    await app.close();
  });
});
