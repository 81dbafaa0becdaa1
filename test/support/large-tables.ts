/**
 * Tables of a service after a month, made by the database in statements of CHUNK rows. 97 % of jobs
 * are final without results, 3 % failed, half belong to the first account; a quarter left a
 * notification. Due ones go to one hanging receiver, except `quietReceivers`; `credits check` finds
 * no fault.
 */
import { DatabaseSync } from 'node:sqlite';
import { openDatabase } from '@matting/database/connect.ts';
import type { Database, Schema } from '@matting/database/database.ts';
import { type Insertable, type Kysely, sql } from 'kysely';
import { SILENT_LOG } from './database.ts';

export interface LargeTables {
  readonly jobs: number;
  readonly openJobs?: number;
  /** Final jobs past 30 days, which the sweeper removes. */
  readonly oldJobs?: number;
  /** To HANGING_RECEIVER. */
  readonly dueNotifications?: number;
  /** Each has one due notification, later than all of HANGING_RECEIVER's. */
  readonly quietReceivers?: number;
  /** At least as many entries as the jobs need. */
  readonly ledgerEntries?: number;
  /** Accounts with a grant and no jobs, in addition to ACCOUNTS. */
  readonly idleAccounts?: number;
  /** Jobs and their indexes only. */
  readonly lean?: boolean;
}

export const HANGING_RECEIVER = 'hangs.example:443';
export const SECRET_KEY_ID = 'key-of-large-tables';
export const ACCOUNTS = 20;
export const accountOf = (index: number) => `00000000-0000-4000-a000-${hex12(index)}`;
export const apiKeyOf = (index: number) => `large${String(index).padStart(7, '0')}`;
export const quietReceiverOf = (index: number) => `quiet-${index}.example:443`;

const DAY_MS = 86_400_000;
const KEPT_MS = 30 * DAY_MS;
const CHUNK = 100_000;
const CHUNK_ROWS = 200;
const ENTRIES = 1500;
const ANALYZED = ['jobs', 'outbox', 'ledger_entries', 'accounts'];

/** Its statements may take an hour: those of millions of rows take minutes on a busy machine. */
export function openToFill(url: string): Promise<Database> {
  return openDatabase(url, { log: SILENT_LOG, statementMsMax: 3_600_000 });
}

/** Fills empty tables. On SQLite no other process may have a transaction open. */
export async function fillLargeTables(database: Database, tables: LargeTables): Promise<void> {
  const { jobs, openJobs = 100, oldJobs = 0, idleAccounts = 0, lean = false } = tables;
  const filler = await openFiller(database);
  try {
    const indexes = await filler.dropIndexes();
    await filler.run(accountRows(filler.words, ACCOUNTS + idleAccounts));
    for (const from of chunks(jobs)) {
      await filler.run(finalJobs(filler.words, from, Math.min(CHUNK, jobs - from), jobs, oldJobs));
    }
    if (openJobs > 0) await filler.run(openJobRows(filler.words, jobs, openJobs));
    await fillOutbox(filler, tables);
    if (!lean) await fillLedger(filler, tables, jobs + openJobs);
    for (const statement of indexes) await filler.run(statement);
    if (!lean) await filler.run(BALANCES);
    for (const table of lean ? [] : ANALYZED) {
      await filler.run(filler.words.analyze(table));
    }
  } finally {
    filler.close();
  }
}

/** The table must be empty. */
export async function fillTable<T extends keyof Schema & string>(
  { kysely, dialect }: Database,
  table: T,
  rows: readonly Insertable<Schema[T]>[],
): Promise<void> {
  for (let from = 0; from < rows.length; from += CHUNK_ROWS) {
    await kysely
      .insertInto(table)
      .values(rows.slice(from, from + CHUNK_ROWS))
      .execute();
  }
  const analyze = dialect === 'sqlite' ? 'analyze' : 'analyze table';
  await sql`${sql.raw(analyze)} ${sql.table(table)}`.execute(kysely);
}

/** The log must be empty. */
export async function fillLargeLog(database: Database): Promise<void> {
  const nowMs = Date.now();
  const entries = Array.from({ length: ENTRIES }, (_, index) => entryRow(index, nowMs));
  await fillTable(database, 'audit_entries', entries);
}

function entryRow(index: number, nowMs: number): Schema['audit_entries'] {
  return {
    id: `00000000-0000-4000-c000-${index.toString(16).padStart(12, '0')}`,
    account_id: accountOf(index % 2 === 0 ? 0 : 1),
    created_at: nowMs - (ENTRIES - index) * 1000,
    actor_kind: 'operator',
    actor_user_id: null,
    actor_mail: null,
    address: null,
    action: 'key.created',
    subject: 'a key',
    value_before: null,
    value_after: '{"name":"a key"}',
  };
}

async function fillOutbox({ words, run }: Filler, tables: LargeTables): Promise<void> {
  const { dueNotifications = 0, quietReceivers = 0, lean = false } = tables;
  if (!lean) await run(deliveredRows(words));
  for (const from of chunks(dueNotifications)) {
    const count = Math.min(CHUNK, dueNotifications - from);
    await run(dueRows(words, from, count, `'${HANGING_RECEIVER}'`));
  }
  if (quietReceivers > 0) {
    const receiver = words.concat("'quiet-'", `(i - ${QUIET_FROM})`, "'.example:443'");
    await run(dueRows(words, QUIET_FROM, quietReceivers, receiver));
  }
}

async function fillLedger(filler: Filler, tables: LargeTables, jobs: number): Promise<void> {
  const { words, run } = filler;
  for (const statement of ledgerOfJobs(words)) await run(statement);
  const pairs = Math.floor(((tables.ledgerEntries ?? 0) - 2 * jobs - ACCOUNTS) / 2);
  for (const from of chunks(pairs)) {
    const count = Math.min(CHUNK, pairs - from);
    await run(forgottenEntries(words, jobs + from, count, 'reserve'));
    await run(forgottenEntries(words, jobs + from, count, 'settle'));
  }
  await run(GRANTS);
}

/** Above every index of a due notification. */
const QUIET_FROM = 500_000_000;

interface Words {
  readonly now: string;
  /** `select i` of `count` numbers. */
  numbers(from: number, count: number): string;
  concat(...parts: string[]): string;
  hex(value: string, digits: number): string;
  analyze(table: string): string;
}

interface Filler {
  readonly words: Words;
  run(statement: string): Promise<void>;
  /** @returns the statements that create them again */
  dropIndexes(): Promise<string[]>;
  close(): void;
}

function* chunks(count: number): Generator<number> {
  for (let from = 0; from < count; from += CHUNK) yield from;
}

function hex12(value: number): string {
  return value.toString(16).padStart(12, '0');
}

const DIGITS = `(${Array.from({ length: 10 }, (_, d) => `select ${d} as d`).join(' union all ')})`;

function numbers(from: number, count: number): string {
  const places = ['a', 'b', 'c', 'e', 'f'];
  const sum = places.map((place, index) => `${place}.d * ${10 ** index}`).join(' + ');
  const tables = places.map(place => `${DIGITS} as ${place}`).join(' cross join ');
  return `(select n + ${from} as i from (select ${sum} as n from ${tables}) as counted
    where n < ${count}) as numbered`;
}

const SQLITE: Words = {
  now: `cast(round(unixepoch('now', 'subsec') * 1000) as integer)`,
  numbers,
  concat: (...parts) => parts.join(' || '),
  hex: (value, digits) => `printf('%0${digits}x', ${value})`,
  analyze: table => `analyze ${table}`,
};

const MYSQL: Words = {
  now: 'cast(unix_timestamp(now(3)) * 1000 as signed)',
  numbers,
  concat: (...parts) => `concat(${parts.join(', ')})`,
  hex: (value, digits) => `lower(lpad(hex(${value}), ${digits}, '0'))`,
  analyze: table => `analyze table ${table}`,
};

/** Looks random; an odd factor is a bijection of 32-bit values. */
function scattered(i: string): string {
  return `((${i}) * 2654435761 % 4294967296)`;
}

function idOf(words: Words, i: string): string {
  const { concat, hex } = words;
  return concat(hex(scattered(i), 8), "'-0000-4000-8000-'", hex(i, 12));
}

function hashOf(words: Words, i: string): string {
  return words.concat(words.hex(scattered(`${i} + 7`), 8), words.hex(i, 56));
}

function ownerOf(words: Words, i: string, prefix: string, digits: number): string {
  const index = `case when (${i}) % 2 = 0 then 0 else ((${i}) / 2) % ${ACCOUNTS} end`;
  return words.concat(prefix, words.hex(wholeOf(words, index), digits));
}

function wholeOf(words: Words, value: string): string {
  return words === SQLITE
    ? `cast(${value} as integer)`
    : `cast(floor(${value.replaceAll(' / ', ' div ')}) as signed)`;
}

const accountId = (words: Words, i: string) => ownerOf(words, i, "'00000000-0000-4000-a000-'", 12);
const keyId = (words: Words, i: string) => ownerOf(words, i, "'large'", 7);

function accountRows(words: Words, count: number): string {
  const id = words.concat("'00000000-0000-4000-a000-'", words.hex('i', 12));
  return `insert into accounts (id, name, available, reserved, created_at)
    select ${id}, ${words.concat("'large '", 'i')}, 0, 0, 1 from ${words.numbers(0, count)}`;
}

function finalJobs(words: Words, from: number, count: number, jobs: number, old: number): string {
  const age = `case when i < ${old} then ${KEPT_MS} + ${DAY_MS} + (${old} - i) * 10
    else (${jobs} - i) * ${Math.floor((KEPT_MS - DAY_MS) / Math.max(1, jobs - old))} end`;
  const failed = '(i % 100) >= 97';
  const fresh = `(${age}) < ${DAY_MS} and not ${failed}`;
  const unless = (condition: string, value: string) =>
    `case when ${condition} then null else ${value} end`;
  const only = (condition: string, value: string) => `case when ${condition} then ${value} end`;
  const finished = `${words.now} - (${wholeOf(words, age)})`;
  return `insert into jobs (id, account_id, api_key_id, idempotency_key_hash, fingerprint, state,
      class, output_format, created_at, started_at, finished_at, fence, lost_attempts,
      lost_with_process, takeovers, expires_at, result_blob, result_blob_expires_at, result_token,
      result_token_sealed, result_sha256, result_format, result_bytes, result_width,
      result_height, failure_code, failure_detail, failure_retryable)
    select ${idOf(words, 'i')}, ${accountId(words, 'i')}, ${keyId(words, 'i')},
      ${hashOf(words, 'i')}, ${hashOf(words, '1')}, case when ${failed} then 'failed' else
      'succeeded' end, case when i % 3 = 0 then 'sync' else 'async' end, 'png', ${finished} - 2000,
      ${finished} - 1000, ${finished}, 1, 0, 0, 0, ${unless(failed, `${finished} + ${DAY_MS}`)},
      ${only(fresh, words.concat("'results/'", idOf(words, 'i'), "'-1'"))},
      ${only(fresh, `${finished} + ${DAY_MS}`)},
      ${unless(failed, hashOf(words, 'i'))}, ${unless(failed, "'sealed'")},
      ${unless(failed, hashOf(words, 'i'))}, ${unless(failed, "'png'")},
      ${unless(failed, '500000')}, ${unless(failed, '2000')}, ${unless(failed, '1500')},
      ${only(failed, "'PROCESSING_FAILED'")}, ${only(failed, "'the image cannot be decoded'")},
      ${only(failed, '0')}
    from ${words.numbers(from, count)}`;
}

function openJobRows(words: Words, from: number, count: number): string {
  const i = `(i + ${from})`;
  return `insert into jobs (id, account_id, api_key_id, idempotency_key_hash, fingerprint, state,
      class, output_format, created_at, queue_at, input_blob, input_bytes, input_format,
      input_width, input_height, fence, lost_attempts, lost_with_process, takeovers)
    select ${idOf(words, i)}, ${accountId(words, i)}, ${keyId(words, i)}, ${hashOf(words, i)},
      ${hashOf(words, '1')}, 'ready', case when i % 3 = 0 then 'sync' else 'async' end, 'png',
      ${words.now} - 5000, ${words.now} - 5000 + i, ${words.concat("'inputs/'", idOf(words, i))},
      1000, 'png', 2000, 1500, 0, 0, 0, 0
    from ${words.numbers(0, count)}`;
}

const OUTBOX_COLUMNS = `id, kind, account_id, address, receiver, body, status, attempts,
  last_status_code, last_attempt_at, next_attempt_at, fence, created_at, finished_at, secret,
  secret_key_id, secret_erase_at`;

function deliveredRows(words: Words): string {
  // An id ends in a hexadecimal digit: one job of four.
  const some = `substr(id, 36, 1) in ('0', '4', '8', 'c')`;
  const receiver = words.concat("'good-'", 'substr(id, 1, 2)', "'.example:443'");
  return `insert into outbox (${OUTBOX_COLUMNS})
    select id, 'webhook', account_id, 'https://good.example/hook', ${receiver},
      '{"type":"matting.job.succeeded"}', 'delivered', 1, 204, finished_at, null, 1, finished_at,
      finished_at, null, null, null
    from jobs where finished_at is not null and ${some}`;
}

/** Without rows of jobs: queries read the outbox alone. */
function dueRows(words: Words, from: number, count: number, receiver: string): string {
  const quiet = from === QUIET_FROM;
  const dueAt = quiet ? `${words.now} - 1000` : `${words.now} - 3600000 + i % 1000000`;
  return `insert into outbox (${OUTBOX_COLUMNS})
    select ${idOf(words, 'i + 1000000000')}, 'webhook', ${accountId(words, quiet ? '1 + 2 * i' : '0')},
      ${words.concat("'https://'", receiver, "'/hook'")}, ${receiver},
      '{"type":"matting.job.succeeded"}', 'pending', 0, null, null, ${dueAt}, 0,
      ${words.now} - 3600000, null, ${words === SQLITE ? "x'00'" : "'0'"}, '${SECRET_KEY_ID}',
      ${words.now} + ${DAY_MS}
    from ${words.numbers(from, count)}`;
}

const ENTRY_COLUMNS = 'id, account_id, job_id, kind, slot, reference, amount, created_at';

function ledgerOfJobs(words: Words): string[] {
  const id = (mark: string) => words.concat(`'${mark}'`, 'substr(id, 2)');
  return [
    `insert into ledger_entries (${ENTRY_COLUMNS}) select ${id('r')}, account_id, id, 'reserve',
      'reserve', id, 1, created_at from jobs`,
    `insert into ledger_entries (${ENTRY_COLUMNS}) select ${id('s')}, account_id, id,
      case state when 'failed' then 'release' else 'charge' end, 'settle', id, 1, finished_at
      from jobs where finished_at is not null`,
  ];
}

/** Entries of jobs whose rows were removed. */
function forgottenEntries(
  words: Words,
  from: number,
  count: number,
  slot: 'reserve' | 'settle',
): string {
  const kind = slot === 'reserve' ? 'reserve' : 'charge';
  const job = idOf(words, 'i');
  return `insert into ledger_entries (${ENTRY_COLUMNS})
    select ${words.concat(`'${kind === 'reserve' ? 'r' : 's'}'`, `substr(${job}, 2)`)},
      ${accountId(words, 'i')}, ${job}, '${kind}', '${slot}', ${job}, 1,
      ${words.now} - ${KEPT_MS} - ${DAY_MS} - i
    from ${words.numbers(from, count)}`;
}

const GRANTED = 1_000_000_000;

const GRANTS = `insert into ledger_entries (${ENTRY_COLUMNS})
  select id, id, null, 'grant', 'grant', 'first', ${GRANTED}, 1 from accounts`;

const BALANCES = `update accounts set
  reserved = (select count(*) from jobs where jobs.account_id = accounts.id
    and queue_at is not null),
  available = ${GRANTED} - (select coalesce(sum(case kind when 'reserve' then amount
    when 'release' then -amount else 0 end), 0) from ledger_entries
    where ledger_entries.account_id = accounts.id)`;

async function openFiller(database: Database): Promise<Filler> {
  return database.dialect === 'sqlite' ? openSqliteFiller(database) : openServerFiller(database);
}

async function openSqliteFiller(database: Database): Promise<Filler> {
  const { rows } = await sql<{ file: string }>`pragma database_list`.execute(database.kysely);
  const db = new DatabaseSync(rows[0]!.file, { timeout: 5000 });
  db.exec('pragma synchronous = off; pragma cache_size = -2000000; pragma temp_store = memory');
  return {
    words: SQLITE,
    run: async statement => db.exec(statement),
    dropIndexes: async () => {
      const found = db
        .prepare("select name, sql from sqlite_schema where type = 'index' and sql is not null")
        .all();
      for (const { name } of found) db.exec(`drop index "${name}"`);
      return found.map(index => String(index.sql));
    },
    close: () => {
      db.exec('pragma wal_checkpoint(truncate)');
      db.close();
    },
  };
}

interface IndexColumn {
  readonly table_name: string;
  readonly index_name: string;
  readonly columns: string;
}

async function openServerFiller({ kysely }: { kysely: Kysely<Schema> }): Promise<Filler> {
  const run = async (statement: string) => {
    await sql.raw(statement).execute(kysely);
  };
  return {
    words: MYSQL,
    run,
    dropIndexes: async () => {
      const { rows } = await sql<IndexColumn>`select table_name as table_name,
          index_name as index_name,
          group_concat(column_name order by seq_in_index) as columns
        from information_schema.statistics where table_schema = database() and non_unique = 1
          and table_name in ('jobs', 'outbox', 'ledger_entries')
        group by table_name, index_name`.execute(kysely);
      for (const { table_name, index_name } of rows) {
        await run(`drop index ${index_name} on ${table_name}`);
      }
      return rows.map(
        row => `create index ${row.index_name} on ${row.table_name} (${row.columns})`,
      );
    },
    close: () => undefined,
  };
}
