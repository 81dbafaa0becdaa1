/** Every branch of a method that runs a statement. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { createApiKeyToken } from '@matting/accounts/keys/api-key-token.ts';
import { beginReserved, reserveAhead } from '@matting/accounts/ledger/ledger-writer.ts';
import type { Database } from '@matting/database/database.ts';
import { addTo } from '@matting/database/test/rows.ts';
import { accountOf } from '@matting/test-support/large-tables.ts';
import type { Stores } from '../stores.ts';
import { CHANGING } from './changing.ts';
import {
  bounded,
  type Exercise,
  exercisesOf,
  jobOfLargest,
  LEDGER_READS_MAX,
  LEDGER_WHY,
} from './exercise.ts';
import { fundedAccount, IMAGE_FAULT, LIMITS, newJob, OPERATOR, running } from './fixtures.ts';
import { READING } from './reading-methods.ts';

const BESIDE: Readonly<Record<string, Exercise>> = {
  'queue.submit': async (stores, database) => {
    await submitCapped(stores);
    await reserveAndTakeBack(database);
    const none = await fundedAccount(stores, 0);
    const refused = await stores.queue.submit(newJob(none), LIMITS);
    assert.equal(refused.kind, 'insufficient-credits');
  },
  'apiKeys.change': async stores => {
    const { key } = await stores.apiKeys.create(accountOf(0), 'statements');
    const by = { accountId: accountOf(0), actor: OPERATOR };
    const cap = { credits: 5, period: 'month' } as const;
    await stores.apiKeys.change(key.id, by, { policy: { cap } });
    await stores.apiKeys.change(key.id, by, { expires: 'never', policy: {} });
  },
  'apiKeys.noteUses': async stores => {
    const { key } = await stores.apiKeys.create(accountOf(0), 'statements');
    await stores.apiKeys.noteUses([{ apiKeyId: key.id, ageMs: 5, byPreviousSecret: true }]);
  },
};

/** Replace those of changing.ts that empty tables or repeat another. */
const INSTEAD: Readonly<Record<string, Exercise>> = {
  bootstrap: async stores =>
    assert.deepEqual(await stores.bootstrap('first', 1), { created: false }),
  'ledger.check': bounded(LEDGER_READS_MAX, LEDGER_WHY, async ({ ledger }) => {
    assert.deepEqual(await ledger.check(), []);
    assert.deepEqual(await ledger.check(accountOf(1)), []);
  }),
  'ledger.audit': bounded(LEDGER_READS_MAX, LEDGER_WHY, async ({ ledger }, { kysely }) => {
    await addTo(kysely, 'accounts', { id: accountOf(1) }, { available: 1 });
    assert.equal((await ledger.audit()).problemCount, 1);
    await addTo(kysely, 'accounts', { id: accountOf(1) }, { available: -1 });
    assert.equal((await ledger.audit()).problemCount, 0);
  }),
};

export const EXERCISES: Readonly<Record<string, Exercise>> = {
  ...READING,
  ...exercisesOf(CHANGING, { beside: BESIDE }),
  ...INSTEAD,
};

/** Without packages no upcoming job reserves a credit. */
async function reserveAndTakeBack(database: Database): Promise<void> {
  const ended = database.kysely.transaction().execute(async tx => {
    await reserveAhead(database, tx, accountOf(0), [randomUUID()]);
    await beginReserved(tx, accountOf(0), 1);
    throw new Error('taken back');
  });
  await assert.rejects(ended, /taken back/);
}

async function submitCapped(stores: Stores): Promise<void> {
  const policy = { cap: { credits: 1, period: 'month' } } as const;
  const { key } = await stores.apiKeys.create(accountOf(0), 'statements', { policy });
  const job = (apiKeyId = key.id) => jobOfLargest({ apiKeyId, keyHasCap: true });
  const { claim } = await running(stores, job());
  assert.equal((await stores.queue.submit(job(), LIMITS)).kind, 'key-cap-reached');
  assert.ok(await stores.queue.fail(claim, IMAGE_FAULT));
  const { kind } = await stores.queue.submit(job(createApiKeyToken().id), LIMITS);
  assert.equal(kind, 'created');
}
