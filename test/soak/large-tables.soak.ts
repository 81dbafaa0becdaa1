/** Rows read do not grow with tables, and time hardly. Needs: portal. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import ava, { type ExecutionContext } from 'ava';
import { sql } from 'kysely';
import { Sweeper } from '../../control-plane/core/retention/sweep.ts';
import type { Stores } from '../../control-plane/core/stores.ts';
import { CORE_SUITE } from '../../control-plane/core/test/core-suite.ts';
import {
  type Exercise,
  excessOf,
  LEDGER_WHY,
  soundOn,
  TABLES,
} from '../../control-plane/core/test/exercise.ts';
import { HOUR_MS, NONE_FULL } from '../../control-plane/core/test/fixtures.ts';
import type { MethodSuite } from '../../control-plane/core/test/method-suite.ts';
import type { Database } from '../../control-plane/database/database.ts';
import {
  fillLargeOrders,
  fillLargePeople,
  fillLargeUsage,
} from '../../control-plane/portal/test/large-tables.ts';
import { PORTAL_SUITE } from '../../control-plane/portal/test/methods/portal-suite.ts';
import { openDirectoryBlobStore } from '../../control-plane/storage/directory-store.ts';
import { series, storesOn } from '../../control-plane/test/every-store.ts';
import { createTestDatabase, skipReason, type TestDatabase } from '../support/database.ts';
import {
  fillLargeLog,
  fillLargeTables,
  HANGING_RECEIVER,
  openToFill,
  SECRET_KEY_ID,
} from '../support/large-tables.ts';
import { isNotTested } from '../support/skip.ts';
import { type MeteredDatabase, openMeteredDatabase } from '../support/statement-meter.ts';

const SIZES = {
  ...TABLES,
  jobs: 1_000_000,
  oldJobs: 10_000,
  dueNotifications: 200_000,
  ledgerEntries: 3_000_000,
};
const MONTH_MS = 30 * 24 * HOUR_MS;
/** A scan of these tables takes SQLite several times as long on any machine. */
const STALL_MS_MAX = 1000;

for (const dialect of ['sqlite', 'mysql'] as const) {
  let fixture: TestDatabase | undefined;
  let stores: Stores;
  let filled: Database | undefined;

  const fill = async (): Promise<string> => {
    fixture = await createTestDatabase(dialect, { series });
    const filling = await openToFill(fixture.url);
    if (dialect === 'mysql') {
      // So that a month of rows fits into memory.
      await sql`set global innodb_buffer_pool_size = 2147483648`.execute(filling.kysely);
    }
    await fillLargeTables(filling, SIZES);
    await fillLargeLog(filling);
    await fillLargeUsage(filling);
    await fillLargePeople(filling);
    await fillLargeOrders(filling);
    await filling.close();
    filled = await fixture.open();
    stores = storesOn(filled);
    return fixture.url;
  };
  const close = async () => {
    const opened = fixture;
    fixture = undefined;
    await opened?.close();
  };
  // Closed even if the last test, which closes it, did not run.
  const test = ava.serial.skipIf(isNotTested(skipReason(dialect)));
  ava.serial.after.always(close);

  test(`a month of a busy service on ${dialect} › every statement reads what it read on small tables`, async t => {
    // Filled now, because one database's leftovers would slow the other.
    const url = await fill();
    const { database, statements } = openMeteredDatabase(dialect, url);
    try {
      const metered = { database, statements };
      await countSuite(t, CORE_SUITE, filled!, metered);
      await countSuite(t, PORTAL_SUITE, filled!, metered);
    } finally {
      await database.close();
    }
  });

  test(`a month of a busy service on ${dialect} › the sweeper removes what is old`, async t => {
    const directory = mkdtempSync(path.join(tmpdir(), 'matting-soak-'));
    const sweeper = new Sweeper({
      jobStore: stores.jobs,
      outbox: stores.outbox,
      blobStore: await openDirectoryBlobStore(directory),
      sweeps: stores.sweeps,
      holder: 'soak',
      jobRetentionMs: MONTH_MS,
      logger: {
        info: () => undefined,
        error: (fields: object) => assert.fail(JSON.stringify(fields)),
      },
    });
    // An exercise has taken the lease.
    await filled!.kysely.updateTable('sweeps').set({ lease_expires_at: 1 }).execute();
    await unstalled(t, dialect, async () => {
      while ((await stores.sweeps.backlog(MONTH_MS)).rowsMs > 0) {
        t.true((await sweeper.sweep()).rows > 0, 'nothing more was removed');
      }
    });
    await sweeper.stop();
    rmSync(directory, { recursive: true });
  });

  test(`a month of a busy service on ${dialect} › what is asked every second keeps no caller waiting`, async t => {
    t.teardown(close);
    const asked = { kind: 'webhook' as const, limit: 32, secretKeyIds: [SECRET_KEY_ID] };
    const full = { ...NONE_FULL, destinations: [HANGING_RECEIVER] };
    await unstalled(t, dialect, async () => {
      for (let second = 0; second < 30; second += 1) {
        const due = await stores.outbox.listDue({ ...asked, full });
        t.true(due.length >= SIZES.quietReceivers);
        await stores.queue.listLanes();
        await stores.queue.queued();
        await stores.queue.doneWithin(60_000);
        await stores.outbox.due();
        await stores.sweeps.backlog(MONTH_MS);
        await new Promise(resolve => setImmediate(resolve));
      }
    });
  });
}

async function countSuite<S extends Stores>(
  t: ExecutionContext,
  { fixtures, prepare, exercises, opening }: MethodSuite<S>,
  filled: Database,
  { database, statements }: MeteredDatabase,
): Promise<void> {
  await prepare?.(filled);
  const stores = fixtures.storesOn(database);
  const sound = soundOn(filled, fixtures.storesOn);
  for (const method of opening) await exercises[method]!(stores, database, sound);
  for (const [method, exercise] of Object.entries(exercises)) {
    statements.length = 0;
    await exercise(stores, database, sound);
    t.deepEqual(excessOf(statements, readsMaxOf(exercise)), [], method);
  }
}

/** Sums of an account read every entry. */
function readsMaxOf({ readsMax, why }: Exercise<never>): number | undefined {
  const more = why === LEDGER_WHY ? SIZES.ledgerEntries / TABLES.ledgerEntries : 1;
  return readsMax && readsMax * more;
}

/** Prints the longest stall of the event loop, and bounds it if statements run on it. */
async function unstalled(
  t: ExecutionContext,
  dialect: string,
  run: () => Promise<void>,
): Promise<void> {
  const delay = monitorEventLoopDelay({ resolution: 5 });
  delay.enable();
  await run();
  delay.disable();
  const longestMs = Math.round(delay.max / 1e6);
  t.log(`the longest stall: ${longestMs} ms`);
  if (dialect === 'sqlite') t.true(longestMs < STALL_MS_MAX, `${longestMs} ms`);
}
