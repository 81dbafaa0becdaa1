/**
 * The upgrade of a large database from the last release, under callers:
 *
 *     sh bin/node24 bench/upgrade.ts mysql://root@127.0.0.1:3306/empty
 *     sh bin/node24 bench/upgrade.ts sqlite:FILE
 *
 * It fills the empty database of the release, lets callers submit, runs each new migration, brings
 * the programs to this version, back, and to this version again, and checks all jobs and the
 * ledger. Needs: batches, mcp, object-storage, portal.
 */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { migrationsOf } from '../control-plane/core/test/internals.ts';
import { openDatabase } from '../control-plane/database/connect.ts';
import { query } from '../control-plane/database/database.ts';
import { type MigrationSeries, migrate, schemaState } from '../control-plane/database/migrate.ts';
import { openStorage } from '../control-plane/object-storage/test/open-storage.ts';
import { PACKAGES } from '../control-plane/packages.ts';
import { storesOn } from '../control-plane/test/fixtures.ts';
import { Fleet } from '../test/fleet/fleet.ts';
import {
  type InstalledVersion,
  ReleaseCheckout,
  runCommand,
  THIS_VERSION,
} from '../test/fleet/installed-version.ts';
import { uniformPicture } from '../test/fleet/steady-load.ts';
import { SILENT_LOG } from '../test/support/database.ts';
import { fillLargeTables } from '../test/support/large-tables.ts';
import { until } from '../test/support/processes.ts';
import { lastRelease } from '../test/upgrade/releases.ts';
import { writeResults } from './results.ts';

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    jobs: { type: 'string', default: '500000' },
    accounts: { type: 'string', default: '50000' },
    entries: { type: 'string', default: '5000000' },
    /** The database is a copy of one that was filled before. */
    filled: { type: 'boolean', default: false },
    /** So long a transaction that has read `jobs` stays open beside the migrations, as a dump's does. */
    readS: { type: 'string', default: '0' },
  },
});
const [databaseUrl = ''] = positionals;
const isFile = databaseUrl.startsWith('sqlite:');
const SUBMISSIONS_PER_S = 4;
const CALM_MS = 30_000;
const JOBS_END_MS_MAX = 300_000;
/** A hundred thousand rows at once. */
const STATEMENT_MS_MAX = 3_600_000;
const SERIES = migrationsOf(PACKAGES);

async function fill(release: InstalledVersion): Promise<void> {
  await runCommand(release, ['migrate'], { MATTING_DATABASE_URL: databaseUrl });
  const database = await openDatabase(databaseUrl, {
    log: SILENT_LOG,
    statementMsMax: STATEMENT_MS_MAX,
  });
  try {
    console.error(`filling ${database.place} of ${release.name} ...`);
    await fillLargeTables(database, {
      jobs: Number(values.jobs),
      openJobs: 0,
      ledgerEntries: Number(values.entries),
      idleAccounts: Number(values.accounts),
    });
    // The results have no files, and a control plane would look for them.
    await query(database, db =>
      db
        .updateTable('jobs')
        .set({ result_blob: null, result_blob_expires_at: null })
        .where('result_blob', 'is not', null)
        .execute(),
    );
  } finally {
    await database.close();
  }
}

interface Submission {
  readonly beganMs: number;
  readonly waitedMs: number;
  readonly jobId: string;
}

/** Submits at its pace, however long answers take. Every submission must be taken. */
class Callers {
  readonly done: Submission[] = [];
  readonly failures: string[] = [];
  readonly #open = new Set<Promise<void>>();
  readonly #over = new AbortController();
  readonly #pacing: Promise<void>;

  constructor(fleet: Fleet) {
    this.#pacing = this.#pace(fleet);
  }

  /** The longest wait of those that were open in the time. */
  longestMs(fromMs: number, toMs: number): number {
    const open = this.done.filter(
      ({ beganMs, waitedMs }) => beganMs < toMs && beganMs + waitedMs > fromMs,
    );
    return Math.max(0, ...open.map(({ waitedMs }) => waitedMs));
  }

  async answered(): Promise<void> {
    await Promise.all(this.#open);
  }

  async end(): Promise<void> {
    this.#over.abort();
    await this.#pacing;
    await this.answered();
  }

  async #pace(fleet: Fleet): Promise<void> {
    const { file } = await uniformPicture(11);
    const body = Uint8Array.from(file);
    while (!this.#over.signal.aborted) {
      const call: Promise<void> = this.#submit(fleet, body)
        .catch(error => void this.failures.push(String(error)))
        .finally(() => this.#open.delete(call));
      this.#open.add(call);
      await delay(1000 / SUBMISSIONS_PER_S);
    }
  }

  async #submit({ baseUrl, apiKey }: Fleet, body: Uint8Array<ArrayBuffer>): Promise<void> {
    const headers = {
      authorization: `Bearer ${apiKey}`,
      'content-type': 'image/png',
      'idempotency-key': randomUUID(),
    };
    const beganMs = performance.now();
    for (;;) {
      const init = { method: 'POST', headers, body };
      const answer = await fetch(`${baseUrl}/v1/matting/jobs`, init).catch(() => undefined);
      const job = (await answer?.json()) as { job_id: string };
      if (answer?.ok) {
        this.done.push({ beganMs, waitedMs: performance.now() - beganMs, jobId: job.job_id });
        return;
      }
      // A control plane that restarts refuses a connection or answers 503; the caller comes again.
      if (answer !== undefined && answer.status !== 503) throw new Error(JSON.stringify(job));
      await delay(100);
    }
  }
}

/** The series as far as the migration, which is the next one that it lacks. */
function upTo(name: string): readonly MigrationSeries[] {
  const [own = '', packageName] = name.split('/').reverse();
  return SERIES.filter(one => one.package === packageName).map(one => ({
    ...one,
    migrations: dialect => {
      const all = Object.entries(one.migrations(dialect));
      return Object.fromEntries(all.filter(([known]) => known <= own));
    },
  }));
}

async function migrateEach(callers: Callers): Promise<Record<string, string>> {
  const database = await openDatabase(databaseUrl, { log: SILENT_LOG });
  const figures: Record<string, string> = {};
  try {
    const { pending } = await schemaState(database, SERIES);
    const reading = database.kysely.transaction().execute(async reader => {
      await reader.selectFrom('jobs').select('id').limit(1).execute();
      await delay(Number(values.readS) * 1000);
    });
    await delay(1000);
    for (const name of pending) {
      const fromMs = performance.now();
      await migrate(database, upTo(name));
      const toMs = performance.now();
      await delay(1000);
      await callers.answered();
      const longestMs = callers.longestMs(fromMs, toMs);
      figures[name] = `${Math.round(toMs - fromMs)} ms, submissions ${Math.round(longestMs)} ms`;
      console.error(name, figures[name]);
    }
    await reading;
  } finally {
    await database.close();
  }
  return figures;
}

async function requireWhole(callers: Callers): Promise<void> {
  const database = await openDatabase(databaseUrl, {
    log: SILENT_LOG,
    statementMsMax: STATEMENT_MS_MAX,
  });
  try {
    const ids = callers.done.map(({ jobId }) => jobId);
    const succeeded = () =>
      query(database, db =>
        db
          .selectFrom('jobs')
          .innerJoin('ledger_entries', 'ledger_entries.job_id', 'jobs.id')
          .select('jobs.id')
          .where('jobs.id', 'in', ids)
          .where('state', '=', 'succeeded')
          .where('kind', '=', 'charge')
          .execute(),
      );
    let found = 0;
    const allSucceeded = async () => {
      found = (await succeeded()).length;
      return found === ids.length;
    };
    await until(allSucceeded, {
      timeoutMs: JOBS_END_MS_MAX,
      what: 'the end of every job',
      detail: () => `${found} of ${ids.length}`,
    });
    assert.deepEqual(await storesOn(database).ledger.check(), []);
  } finally {
    await database.close();
  }
}

async function upgrade(release: InstalledVersion): Promise<Record<string, unknown>> {
  const fleet = await Fleet.start({
    version: release,
    controlPlanes: isFile ? 1 : 2,
    nodes: 1,
    model: 'tiny',
    openGround: async directory => {
      if (!values.filled) await fill(release);
      return {
        env: {},
        databaseUrl,
        openStorage: () => openStorage(directory),
        kill: () => Promise.reject(new Error('this ground is not killed')),
        close: () => Promise.resolve(),
      };
    },
  });
  try {
    const callers = new Callers(fleet);
    await delay(CALM_MS);
    const calmMs = Math.round(callers.longestMs(0, Number.POSITIVE_INFINITY));
    const migrations = isFile ? {} : await migrateEach(callers);
    await delay(CALM_MS);
    const steps: Record<string, string> = {};
    for (const version of [THIS_VERSION, release, THIS_VERSION]) {
      for (const program of [...fleet.nodes, ...fleet.planes]) {
        const fromMs = performance.now();
        await program.become(version);
        const tookMs = Math.round(performance.now() - fromMs);
        const step = `${Object.keys(steps).length + 1} ${program.name} ${version.name}`;
        steps[step] = `${tookMs} ms`;
        console.error(step, steps[step]);
        await delay(5000);
      }
    }
    await callers.end();
    assert.deepEqual(callers.failures, []);
    await requireWhole(callers);
    await fleet.close();
    return { calmMs, submissions: callers.done.length, ...migrations, ...steps };
  } catch (error) {
    console.error(fleet.logTail());
    await fleet.kill();
    throw error;
  }
}

await using release = await ReleaseCheckout.install(lastRelease());
writeResults('upgrade', await upgrade(release));
