/**
 * Statements whose text is made once for a database. A job runs through fourteen, and each look at
 * the queue is one: building and compiling such a statement takes more processor time than SQLite
 * does to run it. What differs from one call to the next is a parameter, named where the statement
 * is built.
 */
import type { Compilable, CompiledQuery } from 'kysely';
import type { Database } from './connect.ts';

/** Stands where a call's value belongs. Kysely takes it for a value and asks nothing of it. */
class Place {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** The statement with the values of this call, for `executeQuery`. */
export type KeptStatement<Values extends object, Row> = (
  database: Database,
  values: Values,
) => CompiledQuery<Row>;

/**
 * @param build makes the statement with places where the values belong. It must neither look at
 *   them nor compute with them: what decides the text (null or not, how many) is another statement
 */
export function keepStatement<Values extends object, Row = unknown>(
  build: (database: Database, places: Values) => Compilable<Row>,
): KeptStatement<Values, Row> {
  const kept = new WeakMap<Database, { statement: CompiledQuery<Row>; names: number }>();
  return (database, values) => {
    const names = Object.keys(values);
    let made = kept.get(database);
    if (made === undefined) {
      const places = Object.fromEntries(names.map(name => [name, new Place(name)]));
      made = { statement: build(database, places as Values).compile(), names: names.length };
      kept.set(database, made);
    }
    const { statement } = made;
    const byName = values as Readonly<Record<string, unknown>>;
    const parameters = statement.parameters.map(parameter =>
      parameter instanceof Place ? valueAt(parameter.name, byName) : parameter,
    );
    // One that the first call did not have would be left out without a word.
    if (names.length !== made.names) throw new Error(`a kept statement got ${names.join()}`);
    return { ...statement, parameters };
  };
}

function valueAt(name: string, values: Readonly<Record<string, unknown>>): unknown {
  const value = values[name];
  if (value === undefined) throw new Error(`a kept statement got no ${name}`);
  return value;
}
