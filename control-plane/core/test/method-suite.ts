/** Tables of every method of some stores: what tries them all takes them from here. */
import type { Database } from '@matting/database/database.ts';
import type { MigrationSeries } from '@matting/database/migrate.ts';
import type { Stores } from '../stores.ts';
import type { ChangingMethod } from './changing-methods.ts';
import type { Exercise } from './exercise.ts';
import { methodsOf } from './fixtures.ts';

export interface MethodSuite<S extends Stores = Stores> {
  readonly fixtures: {
    readonly series: readonly MigrationSeries[];
    readonly storesOn: (database: Database) => S;
  };
  readonly prepare?: (database: Database) => Promise<void>;
  /** The stores whose methods are all in the tables; all of them where absent. */
  readonly own?: (database: Database) => object;
  readonly changing: readonly ChangingMethod<S>[];
  /** Methods that change what another does, by the same code. */
  readonly likeAnother: Readonly<Record<string, string>>;
  readonly reading: Readonly<Record<string, Exercise<S>>>;
  readonly exercises: Readonly<Record<string, Exercise<S>>>;
  readonly assertSound: (stores: S, database: Database) => Promise<void>;
  readonly fillLarge: (database: Database) => Promise<void>;
  /** Exercises that open every table first, since a server reads its own tables then. */
  readonly opening: readonly string[];
  /** In these folders the tests must have reached all that builds a statement. */
  readonly folders: readonly string[];
  /** A folder in these whose statements the suite of a package reaches. */
  readonly elsewhere?: string;
}

/** The methods that have to be in the tables, and nothing but these and those of other stores. */
export function ownMethods<S extends Stores>(suite: MethodSuite<S>, database: Database) {
  const all = methodsOf(suite.fixtures.storesOn(database)).filter(name => name !== 'close');
  const own = suite.own === undefined ? all : methodsOf(suite.own(database));
  return { own, others: all.filter(name => !own.includes(name)) };
}
