/**
 * A method of the stores that changes something: how a call of it is arranged, what must hold
 * when its answer was lost, and what a late call does.
 */
import type { Database } from '../../database/database.ts';
import type { Stores } from '../../test/every-store.ts';

/** Where a call is arranged, by stores that lose nothing. */
export interface Fixture {
  readonly stores: Stores;
  readonly database: Database;
  /** An account with credits at least: a new one, or one of the largest, another by each call. */
  readonly account: (credits: number) => Promise<string>;
  /** Of jobs. */
  readonly apiKeyId: string;
}

export interface Arranged {
  /** The call; made again, as its caller would, where the database stayed away. */
  readonly act: (stores: Stores, database: Database) => Promise<unknown>;
  /**
   * Nothing was lost, nothing done twice.
   * @param outcome of the last call
   * @param repeated the first one rejected
   */
  readonly check: (outcome: unknown, repeated: boolean) => Promise<void>;
}

export interface LateCall {
  /** By somebody whose time is over. */
  readonly act: (stores: Stores) => Promise<unknown>;
  /** What it is told. Whatever the tables hold must be as it was. */
  readonly told: unknown;
}

/** What a method did, in short. */
export function kindOf(outcome: unknown): unknown {
  const { kind = outcome } = Object(outcome) as { kind?: unknown };
  return kind;
}

export interface ChangingMethod {
  /** `<store>.<method>`. */
  readonly name: string;
  /** What tells it from another call of the same method. */
  readonly which?: string;
  /** It reads all rows: its database is its own. */
  readonly alone?: boolean;
  readonly arrange: (fixture: Fixture) => Promise<Arranged>;
  /** What the same call is told when it was made before: it changes nothing then. */
  readonly again?: string | boolean;
  /** Absent: it carries no lease and no claim, whenever it comes it means the same. */
  readonly late?: (fixture: Fixture) => Promise<LateCall>;
}
