/** Tables of all methods of some stores, for tests that try each. */
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
  /** Stores whose methods must all be listed; default: all. */
  readonly own?: (database: Database) => object;
  readonly changing: readonly ChangingMethod<S>[];
  /** Methods that share another's code. */
  readonly likeAnother: Readonly<Record<string, string>>;
  readonly reading: Readonly<Record<string, Exercise<S>>>;
  readonly exercises: Readonly<Record<string, Exercise<S>>>;
  readonly assertSound: (stores: S, database: Database) => Promise<void>;
  readonly fillLarge: (database: Database) => Promise<void>;
  /** Exercises that first open every table, because a server then reads its own. */
  readonly opening: readonly string[];
  /** Tests must reach every statement built in these folders. */
  readonly folders: readonly string[];
  /** A folder within them that another package's suite covers. */
  readonly elsewhere?: string;
}

/** Methods that the tables must list: all but other stores'. */
export function ownMethods<S extends Stores>(suite: MethodSuite<S>, database: Database) {
  const all = methodsOf(suite.fixtures.storesOn(database)).filter(name => name !== 'close');
  const own = suite.own === undefined ? all : methodsOf(suite.own(database));
  return { own, others: all.filter(name => !own.includes(name)) };
}
