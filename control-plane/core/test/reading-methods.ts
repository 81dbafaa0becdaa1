/** Methods that change nothing, on the large tables. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { type ActingPerson, requireAuthority } from '@matting/accounts/audit-log.ts';
import { insertInternalKey } from '@matting/accounts/keys/change-api-keys.ts';
import { LEDGER_KINDS } from '@matting/accounts/ledger/ledger.ts';
import { type Database, query, transact } from '@matting/database/database.ts';
import { destinationOf } from '@matting/http/outgoing/outgoing-url.ts';
import { DAY_MS } from '@matting/program/durations.ts';
import { selectEnd } from '@matting/queue/settled-steps.ts';
import {
  accountOf,
  apiKeyOf,
  HANGING_RECEIVER,
  SECRET_KEY_ID,
} from '@matting/test-support/large-tables.ts';
import { backgroundBlob } from '../jobs/blob-names.ts';
import { LISTED_STATES } from '../jobs/caller-jobs.ts';
import type { Stores } from '../stores.ts';
import { readMessages } from '../webhooks/outbox-listing.ts';
import { insertMail, withdrawMails } from '../webhooks/outbox-store.ts';
import { succeededResult } from './changing-others.ts';
import {
  bounded,
  CALLBACK,
  DUE_READS_MAX,
  DUE_WHY,
  type Exercise,
  jobOfLargest,
  OPEN_READS_MAX,
  OPEN_WHY,
  TABLES,
} from './exercise.ts';
import { firstOf } from './families.ts';
import { IMAGE_FAULT, NONE_FULL, running, sha256 } from './fixtures.ts';
import { dueMails, mailOf } from './mails.ts';

/** Of a million jobs in a month; servers count twice. */
const HOUR_READS_MAX = 3000;
/** Servers count a page of each of five kinds, and newer entries. */
const LINES_READS_MAX = 800;
const LINES_WHY = 'reads a page of each kind, and the entries that are newer than the page';

const FIRST = { atMs: 0, id: '' };

const keyOf = ({ apiKeys }: Stores) => apiKeys.create(accountOf(0), 'statements');

async function notified(stores: Stores): Promise<string> {
  const { job, claim } = await running(stores, jobOfLargest({ callback: CALLBACK }));
  assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
  return job.id;
}

/** Behind more mails of another account than one read covers. */
async function listMails(stores: Stores, database: Database): Promise<void> {
  const { kysely } = database;
  const [first, ...others] = Array.from({ length: 257 }, () => mailOf('crowd'));
  await insertMail(database, kysely, first!);
  assert.ok((await dueMails(stores, 4)).length <= 4);
  for (const mail of others) await insertMail(database, kysely, mail);
  assert.ok((await dueMails(stores, 4)).length > 0);
  const ids = [first!, ...others].map(({ id }) => id);
  await withdrawMails(kysely, ids);
}

/** As a package that limits how often a person may change something. */
const refuseNobody = (database: Database) =>
  transact(database, async tx => {
    const actor: ActingPerson = {
      ...{ kind: 'person', userId: 'none', mail: 'ann@shop.example', address: '' },
      refusal: async (_database, _tx, { agesMs }) => {
        assert.deepEqual(await agesMs(60_000, 60), []);
        return undefined;
      },
    };
    const change = { accountId: accountOf(0), actor, entryId: randomUUID() };
    await requireAuthority(database, tx, change);
  });

export const READING: Readonly<Record<string, Exercise>> = {
  'accounts.find': async ({ accounts }) => assert.ok(await accounts.find(accountOf(1))),
  'accounts.findByNameOrId': async ({ accounts }) =>
    assert.ok(await accounts.findByNameOrId('large 1')),
  'accounts.list': ({ accounts }) => accounts.list(),
  'accounts.namesOf': stores => stores.accounts.namesOf(['a', 'b']),
  'accounts.page': ({ accounts }) => accounts.page({ limit: 20, after: 'large 1' }),
  'audit.list': async ({ audit }, database) => {
    await refuseNobody(database);
    const first = await audit.list(accountOf(0), { limit: 50 });
    assert.equal(first.length, 50);
    const next = await audit.list(accountOf(0), { limit: 50, after: first.at(-1) });
    assert.equal(next.length, 50);
  },
  'apiKeys.authenticate': async stores => {
    const { token, key } = await keyOf(stores);
    assert.deepEqual(await stores.apiKeys.authenticate(token), {
      apiKeyId: key.id,
      accountId: accountOf(0),
    });
  },
  'apiKeys.find': async stores => {
    const { key } = await keyOf(stores);
    assert.ok(await stores.apiKeys.find(key.id, accountOf(0)));
    assert.equal(await stores.apiKeys.find(key.id, accountOf(1)), undefined);
  },
  'apiKeys.list': async ({ apiKeys }, database) => {
    const internal = await insertInternalKey(database, database.kysely, accountOf(0), 'package');
    assert.equal(await apiKeys.find(internal), undefined);
    await apiKeys.list();
    await apiKeys.list(accountOf(0));
  },
  'apiKeys.listNewest': async stores => {
    await keyOf(stores);
    const { apiKeys } = stores;
    const [newest] = await apiKeys.listNewest(accountOf(0), 1);
    assert.ok(newest);
    await apiKeys.listNewest(accountOf(0), 50, newest);
  },
  'apiKeys.listExpiring': async stores => {
    const day = { expiresInMs: DAY_MS };
    const { key } = await stores.apiKeys.create(accountOf(0), 'expiring', day);
    // Starts just before the key.
    const after = key.id.slice(0, -1);
    const asked = { after, withinMs: 2 * DAY_MS, limit: 10 };
    const { expiring } = await stores.apiKeys.listExpiring(asked);
    assert.ok(expiring.some(({ id, prefix }) => id === key.id && prefix === key.prefix));
    const { next } = await stores.apiKeys.listExpiring({ ...asked, after: '', limit: 1 });
    assert.ok(next);
  },
  'apiKeys.recall': async stores => {
    const { token, key } = await keyOf(stores);
    assert.equal(stores.apiKeys.recall(token), undefined);
    await stores.apiKeys.authenticate(token);
    const recalled = stores.apiKeys.recall(token);
    assert.ok(typeof recalled === 'object');
    assert.deepEqual(recalled.owner, { accountId: accountOf(0), apiKeyId: key.id });
  },
  'jobs.find': async (stores, database) => {
    const job = await stores.jobs.find(await notified(stores));
    assert.ok(job);
    const { id: jobId, accountId } = job;
    const endOf = (funding: 'credit' | 'free') =>
      query(database, db => {
        const { row, atMs } = selectEnd(db, { accountId, jobId, funding });
        return row.select(atMs.as('at')).execute();
      });
    assert.equal((await endOf('credit')).length, 1);
    assert.equal((await endOf('free'))[0]?.at, job.finishedAtMs);
  },
  'jobs.findFinal': async stores => {
    const id = await notified(stores);
    assert.equal((await stores.jobs.findFinal([id, randomUUID()])).length, 1);
    assert.equal((await stores.jobs.findFinal([id])).length, 1);
  },
  'jobs.listOfKey': bounded(
    6 * 500 * 3,
    'looks at 500 rows of a key at most, by an index',
    async ({ jobs }) => {
      const first = await jobs.listOfKey({ apiKeyId: apiKeyOf(0), limit: 100 });
      assert.equal(first.jobs.length, 100);
      const after = first.next ?? undefined;
      assert.equal(
        (await jobs.listOfKey({ apiKeyId: apiKeyOf(0), limit: 100, after })).jobs.length,
        100,
      );
      for (const status of LISTED_STATES) {
        await jobs.listOfKey({ apiKeyId: apiKeyOf(0), status, limit: 100, after });
      }
      const named = { apiKeyId: apiKeyOf(0), reference: 'none' };
      assert.deepEqual(await jobs.listOfKey({ ...named, limit: 10 }), { jobs: [], next: null });
    },
  ),
  'ledger.inFlight': async ({ ledger }) => assert.ok((await ledger.inFlight(accountOf(0))) > 0),
  'jobs.deletedAmong': ({ jobs }) => jobs.deletedAmong([randomUUID(), randomUUID()]),
  'jobs.findForKey': ({ jobs }) => jobs.findForKey(randomUUID(), apiKeyOf(0)),
  'jobs.findByResultToken': ({ jobs }) => jobs.findByResultToken('none'),
  'queue.listLanes': bounded(OPEN_READS_MAX, OPEN_WHY, async ({ queue }) =>
    assert.ok((await queue.listLanes()).length > 0),
  ),
  'queue.listClaimable': bounded(OPEN_READS_MAX, OPEN_WHY, async ({ queue }) => {
    assert.ok((await queue.listClaimable(256)).length > 0);
    const lanes = await queue.listLanes();
    await queue.listClaimable(
      256,
      lanes.map(lane => ({ ...lane, exceptHosts: ['a', 'b'], unboundOnly: true })),
    );
  }),
  'jobs.list': bounded(
    2 * OPEN_READS_MAX,
    'reads the queue 500 rows at a time',
    async ({ jobs }) => {
      const all = { endedWithinMs: 60 * DAY_MS, limit: 50 };
      for (const filter of [
        { states: ['failed'] as const },
        { states: ['succeeded', 'failed'] as const, accountId: accountOf(3) },
        { states: ['failed'] as const, accountId: accountOf(0), apiKeyId: apiKeyOf(0) },
        { states: ['ready'] as const, accountId: accountOf(0), apiKeyId: apiKeyOf(0) },
        { states: ['ready', 'running'] as const, limit: 10 },
      ]) {
        const page = await jobs.list({ ...all, ...filter });
        assert.ok(page.length > 0);
        await jobs.list({ ...all, ...filter, after: page.at(-1)!.cursor });
      }
      await jobs.list({ ...all, states: ['fetching'], accountId: accountOf(3) });
      const looks = { ...all, states: [], accountId: accountOf(3), look: true };
      for (const apiKeyId of [undefined, apiKeyOf(3)]) {
        await jobs.list({ ...looks, apiKeyId });
        await jobs.list({ ...looks, apiKeyId, after: `look-9-${randomUUID()}` });
      }
    },
  ),
  'jobs.search': async ({ jobs }) => {
    const asked = { accountId: accountOf(0), apiKeyIds: [apiKeyOf(0)], limit: 50 };
    const { id } = (await jobs.openOf(accountOf(0), 1))[0]!;
    for (const text of [id, `${id.slice(0, -1)}`]) {
      assert.ok((await jobs.search({ ...asked, text })).some(job => job.id === id));
    }
    assert.deepEqual(await jobs.search({ ...asked, text: 'no such reference' }), []);
  },
  'jobs.openOf': bounded(OPEN_READS_MAX, OPEN_WHY, async ({ jobs }) =>
    assert.equal((await jobs.openOf(accountOf(0), 5)).length, 5),
  ),
  'queue.queued': bounded(OPEN_READS_MAX, OPEN_WHY, async ({ queue }) =>
    assert.ok((await queue.queued()).jobs > 0),
  ),
  'queue.doneWithin': bounded(500, 'reads what ended within that time', ({ queue }) =>
    queue.doneWithin(60_000),
  ),
  'queue.isKeyTaken': ({ queue }) => queue.isKeyTaken(apiKeyOf(0), sha256('of no package')),
  'jobs.lastHours': bounded(
    HOUR_READS_MAX,
    'counts entries of an index, those of one hour',
    async ({ jobs }) => {
      const hours = await jobs.lastHours();
      assert.equal(hours.length, 24);
      assert.ok(hours.some(({ succeeded, waitMs }) => succeeded > 0 && waitMs > 0));
    },
  ),
  'jobs.referencedBlobs': bounded(210, 'reads an entry a name', async stores => {
    const { jobs } = stores;
    const { kept } = await firstOf(stores, accountOf(0), { apiKeyId: apiKeyOf(0) });
    assert.equal((await jobs.referencedBlobs([kept!.matte.blob])).size, 1);
    const names = Array.from({ length: 200 }, (_, index) => `inputs/none-${index}`);
    names.push(...Array.from({ length: 200 }, () => backgroundBlob(randomUUID())));
    names.push(...Array.from({ length: 200 }, () => `inputs/${randomUUID()}`));
    assert.equal((await jobs.referencedBlobs(names)).size, 0);
  }),
  'ledger.balances': async ({ ledger }) => assert.ok(await ledger.balances(accountOf(0))),
  'ledger.credits': async ({ ledger }) => assert.ok(await ledger.credits(accountOf(0))),
  'ledger.lastAudits': ({ ledger }) => ledger.lastAudits(),
  'ledger.list': async ({ ledger }) => {
    for (const kind of [undefined, 'reserve', 'charge'] as const) {
      const page = await ledger.list(accountOf(0), { kind, limit: 50 });
      assert.equal(page.length, 50);
      const next = await ledger.list(accountOf(0), { kind, limit: 50, after: page.at(-1) });
      assert.equal(next.length, 50);
    }
    // Few and old: after all others.
    const { length } = await ledger.list(accountOf(1), {
      kind: 'grant',
      beforeMs: 10,
      limit: 50,
    });
    assert.equal(length, 1);
    assert.equal((await ledger.list(accountOf(0), { fromMs: 1e15, limit: 50 })).length, 0);
    assert.equal((await ledger.list(accountOf(0), { kind: 'revoke', limit: 50 })).length, 0);
  },
  'ledger.lines': bounded(LINES_READS_MAX, LINES_WHY, async ({ ledger }) => {
    const question = { fromMs: 0, beforeMs: undefined, after: undefined, limit: 51 };
    for (const kinds of [undefined, LEDGER_KINDS]) {
      const page = await ledger.lines(accountOf(0), { ...question, kinds });
      assert.equal(page.length, 51);
      const after = page[50];
      assert.equal((await ledger.lines(accountOf(0), { ...question, kinds, after })).length, 51);
    }
  }),
  'lostResults.newest': async stores => {
    const { jobId, blob } = await succeededResult(stores);
    const other = await stores.lostResults.newest(jobId);
    assert.ok(other !== undefined && other.blob !== blob);
  },
  'lostResults.live': async stores => {
    const [first] = await stores.lostResults.live(FIRST, 10);
    assert.ok(first);
    const after = { atMs: first.expiresAtMs, id: first.jobId };
    assert.ok((await stores.lostResults.live(after, 10)).length > 0);
  },
  'lostResults.corrections': ({ lostResults }) => lostResults.corrections(randomUUID()),
  'nodes.listLive': ({ nodes }) => nodes.listLive(),
  'nodes.listAll': ({ nodes }) => nodes.listAll(),
  'nodes.find': ({ nodes }) => nodes.find('node-1'),
  'sightings.list': ({ sightings }) => sightings.list(),
  'rateQuotas.nowMs': ({ rateQuotas }) => rateQuotas.nowMs(),
  'secretsCanary.find': ({ secretsCanary }) => secretsCanary.find(),
  'sweeps.backlog': async ({ sweeps }) => assert.ok((await sweeps.backlog(30 * DAY_MS)).rowsMs > 0),
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
  'outbox.due': bounded(DUE_READS_MAX, DUE_WHY, async ({ outbox }) =>
    assert.ok((await outbox.due()).count >= TABLES.dueNotifications),
  ),
  'outbox.mailsWaiting': bounded(
    2 * 10_000 + 40,
    'reads the mails that wait, a bounded number',
    async ({ outbox }, database) => {
      await insertMail(database, database.kysely, mailOf(accountOf(0)));
      assert.ok((await outbox.mailsWaiting()).count > 0);
    },
  ),
  'outbox.countSealedWithOthers': bounded(DUE_READS_MAX, DUE_WHY, async ({ outbox }) => {
    assert.equal(await outbox.countSealedWithOthers([SECRET_KEY_ID]), 0);
    assert.ok((await outbox.countSealedWithOthers(['another'])) > 0);
  }),
  'outbox.list': async (stores, database) => {
    assert.equal((await stores.outbox.list({ limit: 20 })).length, 20);
    const [first] = await stores.outbox.list({ limit: 1, status: 'pending' });
    const older = { limit: 20, status: 'pending', after: first } as const;
    assert.equal((await stores.outbox.list(older)).length, 20);
    for (const status of ['pending', 'delivered'] as const) {
      const own = { limit: 20, status, accountId: accountOf(0) };
      const page = await stores.outbox.list(own);
      assert.equal(page.length, 20);
      assert.equal((await stores.outbox.list({ ...own, after: page.at(-1) })).length, 20);
    }
    const jobId = await notified(stores);
    assert.equal((await stores.outbox.list({ limit: 20, jobId })).length, 1);
    const [message] = await readMessages(database.kysely, [jobId]);
    assert.equal(message?.status, 'pending');
    assert.deepEqual(await readMessages(database.kysely, []), []);
  },
  check: stores => stores.check(),
};
