/** Jobs that process no image, in a database with the queue's columns and three of their own. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { insertAccount } from '@matting/accounts/account-store.ts';
import { enterOperatorEntry, readBalances } from '@matting/accounts/ledger/ledger-writer.ts';
import { openDatabase } from '@matting/database/connect.ts';
import { type Database, type Db, query, transact } from '@matting/database/database.ts';
import ava, { type ExecutionContext } from 'ava';
import { sql, type Updateable } from 'kysely';
import { type Columns, closing, JobEnds, type PayloadEnds } from './end-job.ts';
import type { JobFailure, QueueJob } from './job.ts';
import { queueFieldsFromRow, statusFromRow } from './job-rows.ts';
import type { Claim } from './lease-rules.ts';
import { jobLeases } from './leases.ts';
import { queueReads } from './queue-reads.ts';
import {
  JobSubmission,
  jobInsertion,
  type KeyedJob,
  type PayloadSubmission,
} from './submit-job.ts';

const TABLES = [
  `create table accounts (id text primary key, name text, available integer, reserved integer,
     open_corrections integer default 0, batch_waiting integer default 0, created_at integer)`,
  `create table ledger_entries (id text primary key, account_id text, job_id text, kind text,
     slot text, reference text, amount integer, created_at integer,
     unique (account_id, slot, reference))`,
  `create table jobs (id text primary key, account_id text, api_key_id text, model text,
     idempotency_key_hash text, fingerprint text, state text, class text, queue_at integer,
     source_host text, created_at integer, started_at integer, finished_at integer,
     expires_at integer, deleted_at integer, lease_holder text, lease_expires_at integer,
     fence integer, lost_attempts integer, lost_with_process integer, takeovers integer,
     cap_window_start integer, playground_day integer, batch_id text, batch_item integer,
     word text, length integer, failed_with text, unique (api_key_id, idempotency_key_hash))`,
  'create index jobs_lane_state on jobs (state, account_id, api_key_id, class, queue_at, id)',
  'create index jobs_queue on jobs (class, queue_at, id)',
];

type Word = QueueJob & {
  readonly word: string;
  readonly length: number | null;
  readonly failure: JobFailure | null;
};
type NewWord = KeyedJob & { readonly word: string };
type WordRow = Parameters<typeof statusFromRow>[0] &
  Parameters<typeof queueFieldsFromRow>[0] & {
    readonly word: string;
    readonly length: number | null;
    readonly failed_with: string | null;
  };

const columns = (own: Readonly<Record<string, unknown>>) => own as Columns;

async function readWord(database: Database, db: Db, where: ReturnType<typeof sql>) {
  const rows = sql<WordRow>`select *, ${database.nowMs} as read_at from jobs where ${where}`;
  const [row] = (await rows.execute(db)).rows;
  if (row === undefined) return undefined;
  const { failed_with: detail, word, length } = row;
  const failure = detail && ({ code: 'PROCESSING_FAILED', detail, retryable: true } as const);
  const job: Word = {
    ...{ ...statusFromRow(row), ...queueFieldsFromRow(row), word, length },
    failure: failure || null,
  };
  return job;
}
const read = (database: Database, db: Db, id: string) => readWord(database, db, sql`id = ${id}`);

const SUBMISSION: PayloadSubmission<NewWord, Word> = {
  fundingOf: () => 'credit',
  columns: ({ word }) => columns({ word, source_host: null }) as never,
  join: async () => ({}),
  refusalOf: () => undefined,
  read,
  readByKey: (database, db, key, hash) =>
    readWord(database, db, sql`api_key_id = ${key} and idempotency_key_hash = ${hash}`),
};

const ENDS: PayloadEnds<Word> = {
  read,
  fundingOf: () => 'credit',
  cleared: {},
  failed: ({ detail }) => columns({ failed_with: detail }),
  settled: () => ({}),
  async end(_database, _tx, _job, close) {
    await close();
    return undefined;
  },
};

async function openQueue(t: ExecutionContext) {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-foreign-jobs-'));
  const log = { info: () => undefined, warn: () => undefined };
  const file = path.join(directory, 'db.sqlite');
  const database = await openDatabase(`sqlite:${file}`, { log, create: true });
  t.teardown(async () => {
    await database.close();
    rmSync(directory, { recursive: true });
  });
  for (const table of TABLES) await sql.raw(table).execute(database.kysely);
  const account = randomUUID();
  await query(database, db => insertAccount(database, db, account, 'words'));
  await transact(database, tx =>
    enterOperatorEntry(database, tx, {
      ...{ kind: 'grant', accountId: account, amount: 3, reference: 'gift' },
    }),
  );
  const reads = queueReads<{ word: string }, { word: string }>(database, {
    columns: [sql<string>`word`.as('word')] as never,
    fromRow: ({ word }) => ({ word }),
    isUnbound: sql`1 = 1`,
    queuedCost: sql`length(word)`,
    doneCost: sql`length`,
    costUnit: 1,
    countedColumns: ['word'] as never,
    isUnfetched: sql`0`,
    openCountedMax: 100,
  });
  const ends = new JobEnds(database, ENDS, { settled: [] });
  const submission = new JobSubmission(
    database,
    SUBMISSION,
    jobInsertion<NewWord>(SUBMISSION.columns),
    [],
  );
  const leases = jobLeases(database, (db, id) => read(database, db, id));
  return {
    ...{ ...reads, ...leases, ends },
    balances: () => query(database, db => readBalances(db, account)),
    submit: (word: string, idempotencyKeyHash = 'f'.repeat(64)) => {
      const keyed = { accountId: account, apiKeyId: 'key', idempotencyKeyHash, fingerprint: '' };
      const job = { id: randomUUID(), ...keyed, class: 'async' as const, word };
      return submission.submit(job, { jobsInFlightMax: 2 });
    },
    succeed: (claim: Claim, length: number) =>
      ends.finish(claim, {
        kind: 'settle',
        retryable: false,
        from: ['running'],
        statement: closing(database, claim.jobId, ['running'], {
          ...columns({ length }),
          state: 'succeeded',
        } as Updateable<never>).compile(),
        happened: job => job.length === length,
      }),
    find: (id: string) => query(database, db => read(database, db, id)),
  };
}

ava(
  'a job that is no picture is submitted once, listed, claimed, and charged at its end',
  async t => {
    const queue = await openQueue(t);
    const made = await queue.submit('seven');
    assert.ok(made.kind === 'created');
    t.like(await queue.submit('seven'), { kind: 'exists', job: { id: made.job.id } });
    t.like(await queue.queued(), { jobs: 1, cost: 5 });
    const [listed] = await queue.listClaimable(10);
    t.is(listed?.word, 'seven');
    const claimed = await queue.claim(made.job, 'here', 60_000);
    assert.ok(claimed);
    t.is(await queue.claim(made.job, 'there', 60_000), undefined);
    t.true(await queue.admitted(claimed.claim));
    t.true(await queue.succeed(claimed.claim, 5));
    t.true(await queue.succeed(claimed.claim, 5), 'its answer was lost');
    t.like(await queue.find(made.job.id), { state: 'succeeded', length: 5, lease: null });
    t.deepEqual(await queue.balances(), { available: 2, reserved: 0 });
  },
);

ava('a job that is no picture fails, or is cancelled, and its credit comes back', async t => {
  const queue = await openQueue(t);
  const [one, other] = [await queue.submit('one', 'a'), await queue.submit('other', 'b')];
  t.is((await queue.submit('third', 'c')).kind, 'too-many-in-flight');
  assert.ok(one.kind === 'created' && other.kind === 'created');
  const claimed = await queue.claim(one.job, 'here', 60_000);
  assert.ok(claimed);
  const failure = { code: 'PROCESSING_FAILED', detail: 'no letters', retryable: true } as const;
  t.true(await queue.ends.fail(claimed.claim, failure));
  await queue.ends.ending(other.job.id, (_tx, end) =>
    end(other.job, queue.ends.cancelling(other.job, failure)),
  );
  t.like(await queue.find(other.job.id), { state: 'failed', fence: 1, failure });
  t.deepEqual(await queue.balances(), { available: 3, reserved: 0 });
  t.is((await queue.submit('one again', 'a')).kind, 'created', 'the failure freed its key');
});
