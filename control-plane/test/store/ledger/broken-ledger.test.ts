/** What the audit finds of each way to break a ledger. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { onDatabases, useTestDatabase } from '../../../../test/support/database.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import {
  type AuditOptions,
  auditLedger,
  type LedgerAudit,
} from '../../../src/store/ledger/ledger-audit.ts';
import type { Stores } from '../../../src/store/stores.ts';
import { fundedAccount, newJob, resultOf, running, storesOn } from '../fixtures.ts';
import { DAY_MS, DAYS, entry, FIRST_DAY_MS, oldAccount, TUNING } from './old-account.ts';

const test = ava.serial;

onDatabases(test, "the ledger's audit", (test, dialect) => {
  const audit = (options: AuditOptions, on: Database): Promise<LedgerAudit> =>
    auditLedger(on, options, TUNING);
  const problemsOf = ({ problems }: LedgerAudit) => problems.map(({ problem }) => problem);

  {
    const own = useTestDatabase(test, dialect);

    type Breaking = (broken: Database, accountId: string, stores: Stores) => Promise<unknown>;

    interface Verdicts {
      readonly incremental: string;
      readonly full: string;
    }

    /** Audited, broken, and audited again by either kind. */
    async function verdictsAfter(breakIt: Breaking): Promise<Verdicts> {
      const broken = await own.open();
      const accountId = await oldAccount(broken);
      const ownStores = storesOn(broken);
      assert.deepEqual(problemsOf(await audit({}, broken)), []);
      await breakIt(broken, accountId, ownStores);
      const verdict = async (kind: 'incremental' | 'full') => {
        const { problems } = await audit({ kind }, broken);
        return problems.map(({ problem }) => problem).join('\n');
      };
      const verdicts = { incremental: await verdict('incremental'), full: await verdict('full') };
      for (const table of ['ledger_checkpoints', 'ledger_entries', 'jobs'] as const) {
        await broken.kysely.deleteFrom(table).where('account_id', '=', accountId).execute();
      }
      await broken.kysely.deleteFrom('accounts').where('id', '=', accountId).execute();
      await broken.kysely.deleteFrom('ledger_audits').execute();
      return verdicts;
    }

    const entries = (broken: Database, accountId: string) =>
      broken.kysely.updateTable('ledger_entries').where('account_id', '=', accountId);

    test('of a broken ledger › a balance is found by both', async t => {
      const found = await verdictsAfter((broken, accountId) =>
        broken.kysely
          .updateTable('accounts')
          .set(eb => ({ available: eb('available', '+', 1) }))
          .where('id', '=', accountId)
          .execute(),
      );
      const balance = 'available is 77, its ledger says 76';
      t.deepEqual(found, { incremental: balance, full: balance });
    });

    test('of a broken ledger › a checkpoint is found by both while the balance is right', async t => {
      const found = await verdictsAfter((broken, accountId) =>
        broken.kysely
          .updateTable('ledger_checkpoints')
          .set(eb => ({ granted: eb('granted', '+', 1) }))
          .where('account_id', '=', accountId)
          .where('closed_to', '=', FIRST_DAY_MS + DAYS * DAY_MS)
          .execute(),
      );
      const checkpoint = /^the checkpoint to 2026-01-05T00:00:00.000Z says .*grant 101,/;
      for (const verdict of Object.values(found)) t.regex(verdict, checkpoint);
    });

    test('of a broken ledger › a checkpoint that hides a wrong balance is found by the full one', async t => {
      const found = await verdictsAfter(async (broken, accountId) => {
        await broken.kysely
          .updateTable('accounts')
          .set(eb => ({ available: eb('available', '+', 1) }))
          .where('id', '=', accountId)
          .execute();
        await broken.kysely
          .updateTable('ledger_checkpoints')
          .set(eb => ({ granted: eb('granted', '+', 1) }))
          .where('account_id', '=', accountId)
          .where('closed_to', '=', FIRST_DAY_MS + DAYS * DAY_MS)
          .execute();
      });
      t.is(found.incremental, '');
      t.regex(found.full, /the checkpoint to/);
      t.regex(found.full, /available is 77, its ledger says 76/);
    });

    test('of a broken ledger › a checkpoint in the future is found by both', async t => {
      const found = await verdictsAfter((broken, accountId) =>
        broken.kysely
          .updateTable('ledger_checkpoints')
          .set({ closed_to: Number.MAX_SAFE_INTEGER })
          .where('account_id', '=', accountId)
          .where('closed_to', '=', FIRST_DAY_MS + DAYS * DAY_MS)
          .execute(),
      );
      for (const verdict of Object.values(found)) t.regex(verdict, /is in the future$/);
    });

    test('of a broken ledger › an old entry that is gone, more or other is found by the full one', async t => {
      const old = FIRST_DAY_MS + DAY_MS;
      const gone = await verdictsAfter((broken, accountId) =>
        broken.kysely
          .deleteFrom('ledger_entries')
          .where('account_id', '=', accountId)
          .where('kind', '=', 'charge')
          .where('created_at', '=', old + 9)
          .execute(),
      );
      t.is(gone.incremental, '');
      t.regex(gone.full, /the checkpoint to 2026-01-05T00:00:00/);
      t.regex(gone.full, /its reserve has no partner/);
      t.regex(gone.full, /reserved is 0, its ledger says 1/);
      const more = await verdictsAfter((broken, accountId) =>
        broken.kysely
          .insertInto('ledger_entries')
          .values({ ...entry(accountId, 'grant', old, null), reference: 'slipped in' })
          .execute(),
      );
      t.is(more.incremental, '');
      t.regex(more.full, /available is 76, its ledger says 176/);
      const other = await verdictsAfter((broken, accountId) =>
        entries(broken, accountId)
          .set({ kind: 'release' })
          .where('kind', '=', 'charge')
          .where('created_at', '=', old + 9)
          .execute(),
      );
      t.regex(other.full, /the checkpoint to/);
      t.regex(other.full, /available is 76, its ledger says 77/);
    });

    test('of a broken ledger › a job of which the ledger has nothing is found by both', async t => {
      const found = await verdictsAfter(async (broken, accountId, ownStores) => {
        const { job, claim } = await running(ownStores, newJob(accountId));
        await ownStores.jobs.succeed(claim, resultOf(claim), 0, {});
        await broken.kysely.deleteFrom('ledger_entries').where('job_id', '=', job.id).execute();
        await broken.kysely
          .updateTable('accounts')
          .set(eb => ({ available: eb('available', '+', 1) }))
          .where('id', '=', accountId)
          .execute();
      });
      const free = 'the job is succeeded, its ledger has no reserve and no settlement';
      t.deepEqual(found, { incremental: free, full: free });
    });

    test('of a broken ledger › a job that ended without an entry is named by both, although it was read before', async t => {
      const broken = await own.open();
      const ownStores = storesOn(broken);
      const accountId = await fundedAccount(ownStores, 2);
      const { job, claim } = await running(ownStores, newJob(accountId));
      const past = { created_at: FIRST_DAY_MS };
      await entries(broken, accountId).set(past).execute();
      t.deepEqual(problemsOf(await audit({}, broken)), []);
      await ownStores.jobs.succeed(claim, resultOf(claim), 0, {});
      await broken.kysely
        .deleteFrom('ledger_entries')
        .where('job_id', '=', job.id)
        .where('slot', '=', 'settle')
        .execute();
      for (const kind of ['incremental', 'full'] as const) {
        const { problems } = await audit({ kind }, broken);
        t.deepEqual(
          problems.map(({ problem, jobId }) => [jobId, problem]).sort(),
          [
            [job.id, 'the job is succeeded, its ledger has reserve 1 and no settlement'],
            [null, 'reserved is 0, its ledger says 1'],
          ].sort(),
        );
      }
    });
  }
});
