/** Bypasses the stores. */
import type { Insertable, Kysely, Selectable } from 'kysely';
import type { Schema } from '../database.ts';

type Table = keyof Schema & string;
type Columns<T extends Table> = Partial<Selectable<Schema[T]>>;
type Changes<T extends Table> = { readonly [C in keyof Insertable<Schema[T]>]?: unknown };
type Wheres = { where(...condition: readonly never[]): Wheres };

function having<S>(statement: S, values: object): S {
  return Object.entries(values).reduce(
    (some, [column, value]) => some.where(...([column, '=', value] as never[])),
    statement as unknown as Wheres,
  ) as unknown as S;
}

export function rowsOf<T extends Table>(
  kysely: Kysely<Schema>,
  table: T,
  values: Columns<T>,
): Promise<Selectable<Schema[T]>[]> {
  const rows = having(kysely.selectFrom(table as Table).selectAll(), values).execute();
  return rows as Promise<unknown> as Promise<Selectable<Schema[T]>[]>;
}

export async function rowOf<T extends Table>(
  kysely: Kysely<Schema>,
  table: T,
  values: Columns<T>,
): Promise<Selectable<Schema[T]>> {
  const [row] = await rowsOf(kysely, table, values);
  if (row === undefined) throw new Error(`no row in ${table} of ${JSON.stringify(values)}`);
  return row;
}

export async function setIn<T extends Table>(
  kysely: Kysely<Schema>,
  table: T,
  values: Columns<T>,
  changes: Changes<T>,
): Promise<void> {
  await having(kysely.updateTable(table as Table).set(changes as never), values).execute();
}

export async function addTo<T extends Table>(
  kysely: Kysely<Schema>,
  table: T,
  values: Columns<T>,
  amounts: { readonly [C in keyof Insertable<Schema[T]>]?: number },
): Promise<void> {
  const sums = Object.entries(amounts).map(([column, amount]) => {
    return [column, (eb: (...sum: unknown[]) => unknown) => eb(column, '+', amount)];
  });
  await setIn(kysely, table, values, Object.fromEntries(sums));
}

export async function removeFrom<T extends Table>(
  kysely: Kysely<Schema>,
  table: T,
  values: Columns<T>,
): Promise<void> {
  await having(kysely.deleteFrom(table as Table), values).execute();
}
