import type { Database } from '@matting/database/database.ts';
import type { Stores } from '../stores.ts';

export interface Fixture<S extends Stores = Stores> {
  readonly stores: S;
  readonly database: Database;
  /** Has at least these credits; sometimes a new one, sometimes one of the largest. */
  readonly account: (credits: number) => Promise<string>;
  readonly apiKeyId: string;
}

export interface Arranged<S extends Stores = Stores> {
  /** A caller repeats it if the database stayed away. */
  readonly act: (stores: S, database: Database) => Promise<unknown>;
  /** Fails on anything lost or done twice; `repeated`: the first call rejected. */
  readonly check: (outcome: unknown, repeated: boolean) => Promise<void>;
}

export interface LateCall<S extends Stores = Stores> {
  readonly act: (stores: S) => Promise<unknown>;
  /** The call's result. The tables must be unchanged. */
  readonly told: unknown;
}

export function kindOf(outcome: unknown): unknown {
  const { kind = outcome } = Object(outcome) as { kind?: unknown };
  return kind;
}

export interface ChangingMethod<S extends Stores = Stores> {
  readonly name: string;
  readonly which?: string;
  /** It reads all rows, so it needs its own database. */
  readonly alone?: boolean;
  readonly arrange: (fixture: Fixture<S>) => Promise<Arranged<S>>;
  /** The result of a second identical call, which changes nothing. */
  readonly again?: string | boolean;
  /** Absent: the call has no lease or claim, so it means the same at any time. */
  readonly late?: (fixture: Fixture<S>) => Promise<LateCall<S>>;
}
