/** A method of the stores that changes something: its call, and what must hold after it. */
import type { Database } from '@matting/database/database.ts';
import type { Stores } from '../stores.ts';

export interface Fixture<S extends Stores = Stores> {
  readonly stores: S;
  readonly database: Database;
  /** An account with credits at least: a new one, or one of the largest, another by each call. */
  readonly account: (credits: number) => Promise<string>;
  readonly apiKeyId: string;
}

export interface Arranged<S extends Stores = Stores> {
  /** The call; made again, as its caller would, where the database stayed away. */
  readonly act: (stores: S, database: Database) => Promise<unknown>;
  /** Nothing was lost, nothing done twice; `repeated`: the first call rejected. */
  readonly check: (outcome: unknown, repeated: boolean) => Promise<void>;
}

export interface LateCall<S extends Stores = Stores> {
  readonly act: (stores: S) => Promise<unknown>;
  /** The call returns this. Whatever the tables hold must be as it was. */
  readonly told: unknown;
}

export function kindOf(outcome: unknown): unknown {
  const { kind = outcome } = Object(outcome) as { kind?: unknown };
  return kind;
}

export interface ChangingMethod<S extends Stores = Stores> {
  readonly name: string;
  readonly which?: string;
  /** Reads all rows, so it gets a database of its own. */
  readonly alone?: boolean;
  readonly arrange: (fixture: Fixture<S>) => Promise<Arranged<S>>;
  /** The same call returns this if it was made before: it changes nothing then. */
  readonly again?: string | boolean;
  /** Absent: it carries no lease and no claim, whenever it comes it means the same. */
  readonly late?: (fixture: Fixture<S>) => Promise<LateCall<S>>;
}
