/** What a database counts of itself: for a maintainer who has only a file of numbers. */
import { type Kysely, sql } from 'kysely';
import type { Database } from './connect.ts';
import type { Schema } from './schema.ts';
import { query } from './transact.ts';

/** Numbers alone come of these: no statement, no user, no name but of our tables. */
const COUNTED =
  /^(Aborted_|Bytes_|Com_(select|insert|update|delete|commit|rollback|begin)$|Connections$|Created_tmp|Handler_read_rnd|Innodb_(buffer_pool_(reads|read_requests|wait_free)|deadlocks|row_lock|data_(reads|writes|fsyncs)|log_waits|rows_)|Max_used_connections$|Questions$|Slow_queries$|Table_locks|Threads_|Uptime$|wsrep_(cluster_size|local_(bf_aborts|cert_failures|recv_queue_avg)|flow_control_paused))/i;
const NUMBER = /^-?\d+(\.\d+)?$/;

export interface DatabaseStatistics {
  /** The server's counters since its start, or a file's sizes. */
  readonly counters: Readonly<Record<string, number>>;
  /** About how many rows, and how many bytes with indexes; of a file there is none. */
  readonly tables: readonly {
    readonly name: string;
    readonly rows: number;
    readonly bytes: number;
  }[];
}

export async function readStatistics(database: Database): Promise<DatabaseStatistics> {
  return await query(database, database.dialect === 'sqlite' ? ofFile : ofServer);
}

async function ofFile(kysely: Kysely<Schema>): Promise<DatabaseStatistics> {
  const counters: Record<string, number> = {};
  for (const name of ['page_count', 'page_size', 'freelist_count'] as const) {
    const { rows } = await sql<Record<string, number>>`${sql.raw(`pragma ${name}`)}`.execute(
      kysely,
    );
    counters[name] = Number(rows[0]?.[name] ?? 0);
  }
  return { counters, tables: [] };
}

async function ofServer(kysely: Kysely<Schema>): Promise<DatabaseStatistics> {
  const status = await sql<{ Variable_name: string; Value: string }>`show global status`.execute(
    kysely,
  );
  const counted = status.rows.filter(
    row => COUNTED.test(row.Variable_name) && NUMBER.test(row.Value),
  );
  const tables = await sql<{ name: string; rows: number | null; bytes: number | null }>`
    select table_name as name, table_rows as ${sql.ref('rows')},
      data_length + index_length as bytes
    from information_schema.tables where table_schema = database()`.execute(kysely);
  return {
    counters: Object.fromEntries(counted.map(row => [row.Variable_name, Number(row.Value)])),
    tables: tables.rows.map(({ name, rows, bytes }) => ({
      name,
      rows: Number(rows ?? 0),
      bytes: Number(bytes ?? 0),
    })),
  };
}
