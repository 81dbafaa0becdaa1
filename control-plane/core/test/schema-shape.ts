/** Tables as their statements depend on them. */
import { type Database, query, type Schema } from '@matting/database/database.ts';
import { type Kysely, sql } from 'kysely';

/** Names include the table: `jobs.state`, `jobs: jobs_lane`. */
export interface SchemaShape {
  readonly tables: ReadonlySet<string>;
  readonly columns: ReadonlyMap<string, ColumnShape>;
  /** Columns in order, and whether unique. */
  readonly indexes: ReadonlyMap<string, string>;
  readonly checks: ReadonlyMap<string, string>;
}

export interface ColumnShape {
  /** With collation, default and nullability. */
  readonly type: string;
  /** Inserts may omit it. */
  readonly optional: boolean;
}

/** Repeated like the stores' statements: on Galera another's schema change ends such reads. */
export function readSchemaShape(database: Database): Promise<SchemaShape> {
  return query(database, database.dialect === 'sqlite' ? readSqlite : readMysql);
}

interface ColumnRow {
  readonly tbl: string;
  readonly col: string;
  readonly type: string;
  readonly optional: number;
}

interface IndexRow {
  readonly tbl: string;
  readonly idx: string;
  readonly uniq: number;
  readonly col: string;
}

interface CheckRow {
  readonly tbl: string;
  readonly name: string;
  readonly clause: string;
}

async function readSqlite(kysely: Kysely<Schema>): Promise<SchemaShape> {
  const columns = await sql<ColumnRow>`select m.name as tbl, c.name as col,
    concat_ws(' ', c.type, iif(c."notnull", 'not null', 'null'), c.dflt_value) as type,
    c."notnull" = 0 or c.dflt_value is not null as optional
    from sqlite_schema m, pragma_table_info(m.name) c where m.type = 'table'`.execute(kysely);
  const indexes = await sql<IndexRow>`select m.name as tbl, i.name as idx, i."unique" as uniq,
    coalesce(c.name, '') || iif(i.partial, ' where set', '') as col from sqlite_schema m, pragma_index_list(m.name) i,
    pragma_index_info(i.name) c where m.type = 'table' order by m.name, i.name, c.seqno
    `.execute(kysely);
  const tables = await sql<{ tbl: string; text: string }>`select name as tbl, sql as text
    from sqlite_schema where type = 'table'`.execute(kysely);
  const checks = tables.rows.flatMap(({ tbl, text }) =>
    text
      .replace(/\) strict$/, '')
      .split(', constraint ')
      .flatMap(part => {
        const [, name = '', clause] = /^"(\w+)" check (.*)$/s.exec(part) ?? [];
        return clause === undefined ? [] : [{ tbl, name, clause }];
      }),
  );
  return shapeOf(columns.rows, indexes.rows, checks);
}

async function readMysql(kysely: Kysely<Schema>): Promise<SchemaShape> {
  const columns = await sql<ColumnRow>`select table_name as tbl, column_name as col,
    concat_ws(' ', column_type, collation_name, if(is_nullable = 'YES', 'null', 'not null'),
      column_default) as type, is_nullable = 'YES' or column_default is not null as optional
    from information_schema.columns where table_schema = database()`.execute(kysely);
  const indexes = await sql<IndexRow>`select table_name as tbl, index_name as idx,
    non_unique = 0 as uniq, column_name as col from information_schema.statistics
    where table_schema = database() order by table_name, index_name, seq_in_index`.execute(kysely);
  const checks = await sql<CheckRow>`select t.table_name as tbl, t.constraint_name as name,
    c.check_clause as clause from information_schema.table_constraints t
    join information_schema.check_constraints c on c.constraint_schema = t.constraint_schema
      and c.constraint_name = t.constraint_name
    where t.table_schema = database() and t.constraint_type = 'CHECK'`.execute(kysely);
  return shapeOf(columns.rows, indexes.rows, checks.rows);
}

function shapeOf(
  columns: readonly ColumnRow[],
  indexes: readonly IndexRow[],
  checks: readonly CheckRow[],
): SchemaShape {
  const byIndex = new Map<string, string>();
  for (const { tbl, idx, uniq, col } of indexes) {
    const name = `${tbl}: ${idx}`;
    const before = byIndex.get(name) ?? (Number(uniq) === 1 ? 'unique' : 'plain');
    byIndex.set(name, `${before} ${col}`);
  }
  return {
    tables: new Set(columns.map(({ tbl }) => tbl)),
    columns: new Map(
      columns.map(({ tbl, col, type, optional }) => [
        `${tbl}.${col}`,
        { type, optional: Number(optional) === 1 },
      ]),
    ),
    indexes: byIndex,
    checks: new Map(checks.map(({ tbl, name, clause }) => [`${tbl}: ${name}`, clause])),
  };
}

/** What breaks statements written for `old`; empty: nothing. */
export function brokenFor(old: SchemaShape, next: SchemaShape): string[] {
  const isOldTable = (name: string) => old.tables.has(name.replace(/[.:].*/s, ''));
  const broken: string[] = [];
  for (const table of old.tables) if (!next.tables.has(table)) broken.push(`${table} is gone`);
  for (const [name, column] of old.columns) {
    const now = next.columns.get(name);
    if (now === undefined) broken.push(`${name} is gone`);
    else if (now.type !== column.type) broken.push(`${name} is ${now.type}, was ${column.type}`);
    else if (column.optional && !now.optional) broken.push(`${name} must be given now`);
  }
  for (const [name, { optional }] of next.columns) {
    const added = isOldTable(name) && !old.columns.has(name);
    if (added && !optional) broken.push(`${name} must be given`);
  }
  for (const [name, columns] of old.indexes) {
    const now = next.indexes.get(name);
    if (now === undefined) broken.push(`the index ${name} is gone`);
    else if (now !== columns) broken.push(`the index ${name} is ${now}, was ${columns}`);
  }
  for (const [name, columns] of next.indexes) {
    const added = isOldTable(name) && !old.indexes.has(name);
    // Old statements leave unknown columns null, and nulls are no duplicates.
    const [table = ''] = name.split(':');
    const isUnknown = (column: string) => !old.columns.has(`${table}.${column}`);
    const [, ...names] = columns.split(' ');
    if (added && columns.startsWith('unique') && !names.some(isUnknown))
      broken.push(`${name} refuses what was taken`);
  }
  for (const name of next.checks.keys()) {
    if (isOldTable(name) && !old.checks.has(name)) broken.push(`${name} refuses what was taken`);
  }
  return broken;
}
