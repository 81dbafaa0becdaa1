/**
 * What a doctor asks of a database. It changes nothing: what proves the right to write are
 * statements that match no row, which a server refuses as it refuses any other.
 */
import { sql } from 'kysely';
import type { Database } from './connect.ts';
import { query } from './transact.ts';

export interface DatabaseProbe {
  /** As the table of engines names it. */
  readonly engine: string;
  readonly version: string;
  /** One question and its answer. */
  readonly answerMs: number;
  /** Its clock less this machine's; wrong by half of answerMs at most. */
  readonly clockAheadMs: number;
}

export async function probeDatabase(database: Database): Promise<DatabaseProbe> {
  const { engine, kysely, nowMs, dialect } = database;
  const version = dialect === 'sqlite' ? sql<string>`sqlite_version()` : sql<string>`version()`;
  const beganMs = performance.now();
  const { rows } = await sql<{ at: number; version: string }>`
    select ${nowMs} as at, ${version} as version`.execute(kysely);
  const answerMs = performance.now() - beganMs;
  const [row] = rows;
  if (row === undefined) throw new Error('the database answered without a row');
  const clockAheadMs = row.at - (Date.now() - answerMs / 2);
  return { engine: engine.name, version: row.version, answerMs, clockAheadMs };
}

/** Each proves a right by a statement that matches no row. */
const PROOFS = [
  ['SELECT', 'select id from sweeps where 1 = 0'],
  ['INSERT', 'insert into sweeps (id, fence, walk_part) select id, 0, 0 from sweeps where 1 = 0'],
  ['UPDATE', 'update sweeps set fence = fence where 1 = 0'],
  ['DELETE', 'delete from sweeps where 1 = 0'],
] as const;
/** ER_DBACCESS_DENIED_ERROR, ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR. */
const DENIED: readonly unknown[] = [1044, 1142, 1143];
/** With one of these a user writes to a server that is read-only for everybody else. */
const DEFEAT_READ_ONLY = /^(ALL PRIVILEGES|SUPER|CONNECTION[ _]ADMIN|READ[ _]ONLY ADMIN)$/;
const GRANT = /^GRANT (.+?) ON (\S+) TO /;

export interface DatabaseRights {
  /** Of what every statement of the service needs. */
  readonly missing: readonly string[];
  /** Rights over the whole server that no fail-over protects from. */
  readonly tooWide: readonly string[];
}

/** On a schema that is current. A file has no rights of its own. */
export async function readRights(database: Database): Promise<DatabaseRights> {
  if (database.dialect === 'sqlite') return { missing: [], tooWide: [] };
  const missing: string[] = [];
  for (const [right, statement] of PROOFS) {
    try {
      await sql.raw(statement).execute(database.kysely);
    } catch (error) {
      if (!DENIED.includes((error as { errno?: unknown }).errno)) throw error;
      missing.push(right);
    }
  }
  const { rows } = await sql<Record<string, string>>`show grants`.execute(database.kysely);
  const tooWide = rows.flatMap(row => {
    const [, rights = '', on] = GRANT.exec(Object.values(row)[0] ?? '') ?? [];
    if (on !== '*.*') return [];
    return rights.split(/,\s*/).filter(right => DEFEAT_READ_ONLY.test(right));
  });
  return { missing, tooWide };
}

/** Whether anything at all is in it. */
export async function hasTables(database: Database): Promise<boolean> {
  const tables = await query(database, db =>
    db.introspection.getTables({ withInternalKyselyTables: true }),
  );
  return tables.length > 0;
}
