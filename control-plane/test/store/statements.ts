/** A call or more of each method of the stores, for statements.test.ts: every branch that asks. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { accountOf, HANGING_RECEIVER, SECRET_KEY_ID } from '../../../test/support/large-tables.ts';
import { USAGE_GROUPS } from '../../src/domain/account/usage.ts';
import { PLAYGROUND_OPEN_MAX } from '../../src/domain/playground.ts';
import { destinationOf } from '../../src/domain/url-destination.ts';
import { startOf } from '../../src/store/ledger/ledger-audit.ts';
import { ALERTS, listMails } from './alert-exercises.ts';
import {
  bounded,
  CALLBACK,
  DAY_MS,
  DUE_READS_MAX,
  DUE_WHY,
  type Exercise,
  LEDGER_READS_MAX,
  LEDGER_WHY,
  notificationClaim,
  notified,
  TABLES,
} from './exercise.ts';
import { HOUR_MS, NONE_FULL } from './fixtures.ts';
import { JOBS } from './job-exercises.ts';
import { KEYS } from './key-exercises.ts';
import { LOST_RESULTS } from './lost-result-exercises.ts';
import { ORDERS } from './order-exercises.ts';
import { PEOPLE } from './people-exercises.ts';
import { addTo, setIn } from './rows.ts';

const OPERATOR = { kind: 'operator' } as const;

const OUTBOX: Record<string, Exercise> = {
  'outbox.listDue': async (stores, database) => {
    const { outbox } = stores;
    await listMails(stores, database);
    const asked = {
      kind: 'webhook' as const,
      limit: 32,
      secretKeyIds: [SECRET_KEY_ID],
      full: {
        ...NONE_FULL,
        destinations: [HANGING_RECEIVER, destinationOf(CALLBACK.url)],
      },
    };
    const due = await outbox.listDue(asked);
    assert.equal(due.length, TABLES.quietReceivers);
    const { length } = await outbox.listDue({ ...asked, full: NONE_FULL });
    assert.equal(length, asked.limit);
  },
  'outbox.claim': stores => notificationClaim(stores),
  'outbox.release': async stores =>
    assert.ok(await stores.outbox.release(await notificationClaim(stores))),
  'outbox.delivered': async stores => {
    const end = { statusCode: 204, durationMs: 5 };
    assert.ok(await stores.outbox.delivered(await notificationClaim(stores), end));
  },
  'outbox.retryLater': async stores => {
    const end = { statusCode: 500, durationMs: 5 };
    const claim = await notificationClaim(stores);
    assert.ok(await stores.outbox.retryLater(claim, end, HOUR_MS));
  },
  'outbox.failed': async stores => {
    const end = { statusCode: 410, durationMs: 5 };
    const claim = await notificationClaim(stores);
    assert.ok(await stores.outbox.failed(claim, end, { eraseSecret: true }));
  },
  'outbox.due': bounded(DUE_READS_MAX, DUE_WHY, async ({ outbox }) =>
    assert.ok((await outbox.due()).count >= TABLES.dueNotifications),
  ),
  'outbox.countSealedWithOthers': bounded(DUE_READS_MAX, DUE_WHY, async ({ outbox }) => {
    assert.equal(await outbox.countSealedWithOthers([SECRET_KEY_ID]), 0);
    assert.ok((await outbox.countSealedWithOthers(['another'])) > 0);
  }),
  'outbox.list': async stores => {
    assert.equal((await stores.outbox.list({ limit: 20 })).length, 20);
    const [first] = await stores.outbox.list({ limit: 1, status: 'pending' });
    const older = { limit: 20, status: 'pending', after: first } as const;
    assert.equal((await stores.outbox.list(older)).length, 20);
    const jobId = await notified(stores);
    assert.equal((await stores.outbox.list({ limit: 20, jobId })).length, 1);
  },
  'outbox.retry': async stores =>
    assert.equal(await stores.outbox.retry(await notified(stores)), 'retried'),
  'outbox.resend': async stores => {
    const jobId = await notified(stores);
    const what = { accountId: accountOf(0), action: 'job.resent', subject: jobId };
    const audit = { id: randomUUID(), actor: OPERATOR, ...what };
    assert.equal(await stores.outbox.resend(jobId, audit, HOUR_MS), 'retried');
  },
  'outbox.eraseDueSecrets': async (stores, { kysely }) => {
    const jobId = await notified(stores);
    await setIn(kysely, 'outbox', { id: jobId }, { secret_erase_at: 1 });
    assert.equal(await stores.outbox.eraseDueSecrets(50), 1);
  },
};

/** Entries of a month, and their group's; servers count what a limit lets through twice. */
const USED_READS_MAX = 6 * 30;
const USED_WHY = 'reads a row a day, key, outcome and format';

const NODE = {
  nodeId: 'node-1',
  bootId: randomUUID(),
  address: '127.0.0.1:1',
  httpAddress: '',
  version: '1',
};

const FLEET_REPORT = { inflowPerS: 1, work: { megapixels: 2, nodeMs: 3 }, wantedNodes: 4 };

const OTHERS: Record<string, Exercise> = {
  check: stores => stores.check(),
  compareClocks: stores => stores.compareClocks(),
  bootstrap: async stores =>
    assert.deepEqual(await stores.bootstrap('first', 1), { created: false }),
  'accounts.create': async ({ accounts }) =>
    assert.ok(await accounts.create(`statements ${randomUUID().slice(0, 8)}`)),
  'accounts.find': async ({ accounts }) => assert.ok(await accounts.find(accountOf(1))),
  'accounts.findByNameOrId': async ({ accounts }) =>
    assert.ok(await accounts.findByNameOrId('large 1')),
  'accounts.namesOf': stores => stores.accounts.namesOf(['a', 'b']),
  'accounts.page': ({ accounts }) => accounts.page({ limit: 20, after: 'large 1' }),
  'accounts.list': ({ accounts }) => accounts.list(),
  'ledger.grant': async ({ ledger }) => {
    const reference = randomUUID();
    const [id, accountId] = [randomUUID(), accountOf(0)];
    const audit = { id, accountId, actor: OPERATOR, action: 'credits.granted', subject: id };
    assert.equal((await ledger.grant(accountId, 5, reference, audit)).kind, 'entered');
    assert.equal((await ledger.grant(accountOf(0), 5, reference)).kind, 'already-entered');
  },
  'ledger.revoke': async ({ ledger }) =>
    assert.equal((await ledger.revoke(accountOf(0), 1, randomUUID())).kind, 'entered'),
  'ledger.balances': async ({ ledger }) => assert.ok(await ledger.balances(accountOf(0))),
  'ledger.credits': bounded(LEDGER_READS_MAX, LEDGER_WHY, async ({ ledger }) =>
    assert.ok(await ledger.credits(accountOf(0))),
  ),
  'ledger.check': bounded(LEDGER_READS_MAX, LEDGER_WHY, async ({ ledger }, { kysely }) => {
    await kysely.deleteFrom('ledger_checkpoints').where('closed_to', '>', 0).execute();
    assert.deepEqual(await ledger.check(), []);
    assert.deepEqual(await ledger.check(accountOf(1)), []);
  }),
  'ledger.audit': bounded(LEDGER_READS_MAX, LEDGER_WHY, async ({ ledger }, { kysely }) => {
    await ledger.check();
    await addTo(kysely, 'ledger_checkpoints', { account_id: accountOf(1) }, { granted: 1 });
    // One was interrupted, a while ago.
    await setIn(
      kysely,
      'ledger_audits',
      { kind: 'full' },
      { run_id: randomUUID(), saved_at: 1, progress: JSON.stringify(startOf(1)) },
    );
    const options = { kind: 'full', renewCheckpoints: true } as const;
    assert.equal((await ledger.audit(options)).problemCount, 1);
    assert.equal((await ledger.audit(options)).problemCount, 0);
  }),
  'ledger.lastAudits': ({ ledger }) => ledger.lastAudits(),
  'fleetReports.save': async ({ fleetReports }) => {
    for (let times = 0; times < 2; times += 1) await fleetReports.save('replica', FLEET_REPORT);
  },
  'fleetReports.list': ({ fleetReports }) => fleetReports.list(),
  'nodes.register': async ({ nodes }) =>
    assert.deepEqual(await nodes.register(NODE, HOUR_MS), { draining: false }),
  'nodes.heartbeat': async ({ nodes }) => {
    await nodes.register(NODE, HOUR_MS);
    const { known } = await nodes.heartbeat(NODE.nodeId, NODE.bootId, HOUR_MS);
    assert.ok(known);
  },
  'nodes.deregister': async ({ nodes }) => {
    await nodes.register(NODE, HOUR_MS);
    assert.ok(await nodes.deregister(NODE.nodeId, NODE.bootId));
  },
  'nodes.find': ({ nodes }) => nodes.find(NODE.nodeId),
  'nodes.listLive': ({ nodes }) => nodes.listLive(),
  'nodes.listAll': ({ nodes }) => nodes.listAll(),
  'nodes.setDraining': ({ nodes }) => nodes.setDraining(NODE.nodeId, false),
  'playground.internalKey': ({ playground }) => playground.internalKey(accountOf(3)),
  'playground.findKey': ({ playground }) => playground.findKey(accountOf(3)),
  'playground.usage': ({ playground }) => playground.usage(accountOf(3)),
  'playground.openJobs': bounded(
    3 * PLAYGROUND_OPEN_MAX,
    'counts entries of an index, as many as may be open',
    async ({ playground }) => assert.ok((await playground.openJobs()) > 0),
  ),
  'sweeps.claim': async ({ sweeps }) => {
    const won = await sweeps.claim('replica-1', HOUR_MS);
    assert.ok(won);
    assert.equal(await sweeps.claim('replica-2', HOUR_MS), undefined);
    assert.ok(await sweeps.release(won.claim));
  },
  'sweeps.renew': async ({ sweeps }) =>
    assert.equal(await sweeps.renew({ holder: 'nobody', fence: 0 }, HOUR_MS), false),
  'sweeps.release': async ({ sweeps }) =>
    assert.equal(await sweeps.release({ holder: 'nobody', fence: 0 }), false),
  'sweeps.saveWalk': async ({ sweeps }) =>
    assert.equal(await sweeps.saveWalk({ holder: 'nobody', fence: 0 }, 1, true), false),
  'sweeps.backlog': async ({ sweeps }) => assert.ok((await sweeps.backlog(30 * DAY_MS)).rowsMs > 0),
  'usage.read': bounded(USED_READS_MAX, USED_WHY, async ({ usage }) => {
    const to = await usage.today();
    for (const group of USAGE_GROUPS) {
      const rows = await usage.read(accountOf(0), { from: to - 29, to, group });
      assert.ok(rows !== undefined && rows.length > 0);
    }
  }),
  'usage.total': bounded(USED_READS_MAX, USED_WHY, async ({ usage }) => {
    const to = await usage.today();
    assert.ok((await usage.total(accountOf(0), { from: to - 29, to }))?.images);
  }),
  'usage.today': ({ usage }) => usage.today(),
  'usage.removeOld': async ({ usage }, { kysely }) => {
    assert.equal(await usage.removeOld(50), 0);
    const key = { account_id: accountOf(1), day: 1, api_key_id: 'key', format: 'png' };
    const old = { ...key, outcome: 'failed', images: 1, credits: 0 } as const;
    await kysely.insertInto('usage_days').values(old).execute();
    assert.equal(await usage.removeOld(50), 1);
  },
  'rateQuotas.nowMs': ({ rateQuotas }) => rateQuotas.nowMs(),
  'rateQuotas.lease': async ({ rateQuotas }) => {
    const ask = { limit: 100, block: 10, advance: 0, windowStartMs: 0 };
    await rateQuotas.lease(randomUUID(), 'reads', ask);
  },
  'secretsCanary.find': ({ secretsCanary }) => secretsCanary.find(),
  'secretsCanary.establish': ({ secretsCanary }) =>
    secretsCanary.establish({ keyId: 'a', ciphertext: Uint8Array.of(1) }),
  'secretsCanary.replace': ({ secretsCanary }) =>
    secretsCanary.replace('a', { keyId: 'b', ciphertext: Uint8Array.of(1) }),
};

/** By `store.method`. */
export const EXERCISES: Readonly<Record<string, Exercise>> = {
  ...JOBS,
  ...KEYS,
  ...OUTBOX,
  ...LOST_RESULTS,
  ...ORDERS,
  ...ALERTS,
  ...OTHERS,
  ...PEOPLE,
};
