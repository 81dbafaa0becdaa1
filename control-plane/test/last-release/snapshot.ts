import assert from 'node:assert/strict';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import type { Database } from '@matting/database/database.ts';
import type { DatabaseDialect } from '@matting/database/engines.ts';
import { at } from '@matting/test-support/at.ts';
import { CompiledQuery } from 'kysely';

type OpenJob = 'accepted' | 'fetching' | 'ready' | 'given' | 'running' | 'lost' | 'freed';
export type FinalJob = 'told' | 'untold' | 'expired' | 'retried' | 'refused';

export interface Legacy {
  readonly accountId: string;
  readonly apiKeyId: string;
  readonly token: string;
  readonly idempotencyKeyHash: string;
  readonly resultToken: string;
  /** One job in each state, by the act that led there. */
  readonly jobs: Readonly<Record<OpenJob | FinalJob, string>>;
  readonly available: number;
  readonly families: {
    readonly accountId: string;
    readonly apiKeyId: string;
    readonly correctable: string;
    /** One of its two items is no job yet. */
    readonly openBatch: string;
  };
}

export interface Recorded {
  readonly sql: string;
  readonly parameters: readonly unknown[];
  /** Answered, or else changed. */
  readonly rows: number;
}

export interface Snapshot {
  /** A version, or another name of CONTRIBUTING.md. */
  readonly release: string;
  readonly commit: string;
  readonly recordedAtMs: number;
  /** Create the release's tables in an empty database. */
  readonly schema: readonly Recorded[];
  readonly before: readonly Recorded[];
  readonly legacy: Legacy;
  /** A replica's life after the migration to a later release. */
  readonly after: readonly Recorded[];
}

export const NOTHING_RECORDED =
  'nothing is before the baseline, so there is nothing to upgrade from';

function fileOf(dialect: DatabaseDialect): string {
  return path.join(import.meta.dirname, `${dialect}.json`);
}

/** Each text once; a step has its number, parameters and rows. */
interface Stored extends Omit<Snapshot, 'schema' | 'before' | 'after'> {
  readonly texts: readonly string[];
  readonly schema: readonly StoredStep[];
  readonly before: readonly StoredStep[];
  readonly after: readonly StoredStep[];
}
type StoredStep = readonly [text: number, parameters: readonly unknown[], rows: number];

export function writeSnapshot(dialect: DatabaseDialect, snapshot: Snapshot): void {
  const texts: string[] = [];
  const stored = (steps: readonly Recorded[]): StoredStep[] =>
    steps.map(({ sql, parameters, rows }) => {
      if (!texts.includes(sql)) texts.push(sql);
      return [texts.indexOf(sql), parameters.map(encoded), rows];
    });
  const { release, commit, recordedAtMs, legacy } = snapshot;
  const phases = {
    schema: stored(snapshot.schema),
    before: stored(snapshot.before),
    after: stored(snapshot.after),
  };
  const file: Stored = { release, commit, recordedAtMs, legacy, texts, ...phases };
  writeFileSync(fileOf(dialect), `${JSON.stringify(file)}\n`);
}

/** Undefined: nothing was recorded since the migrations were folded into one. */
export function readSnapshot(dialect: DatabaseDialect): Snapshot | undefined {
  if (!existsSync(fileOf(dialect))) return undefined;
  const stored = JSON.parse(readFileSync(fileOf(dialect), 'utf8')) as Stored;
  const steps = (phase: readonly StoredStep[]): Recorded[] =>
    phase.map(([text, parameters, rows]) => ({
      sql: at(stored.texts, text),
      parameters: parameters.map(parameter => asOfNow(decoded(parameter), stored.recordedAtMs)),
      rows,
    }));
  const { release, commit, recordedAtMs, legacy } = stored;
  return {
    release,
    commit,
    recordedAtMs,
    legacy,
    schema: steps(stored.schema),
    before: steps(stored.before),
    after: steps(stored.after),
  };
}

function encoded(parameter: unknown): unknown {
  return parameter instanceof Uint8Array
    ? { base64: Buffer.from(parameter).toString('base64') }
    : parameter;
}

function decoded(parameter: unknown): unknown {
  return parameter instanceof Object
    ? Buffer.from((parameter as { base64: string }).base64, 'base64')
    : parameter;
}

const DAY_MS = 86_400_000;
const READ_AT_MS = Date.now();

/** Statements compare times with the database's clock, so they keep their distance to now. */
function asOfNow(parameter: unknown, recordedAtMs: number): unknown {
  const isTime = typeof parameter === 'number' && Math.abs(parameter - recordedAtMs) < DAY_MS;
  return isTime ? parameter - recordedAtMs + READ_AT_MS : parameter;
}

/** In sequence; each must do as much as when recorded. */
export async function replay(database: Database, steps: readonly Recorded[]): Promise<void> {
  for (const [index, { sql, parameters, rows }] of steps.entries()) {
    const where = `statement ${index}: ${sql}`;
    const result = await database.kysely
      .executeQuery(CompiledQuery.raw(sql, [...parameters]))
      .catch((error: unknown) => assert.fail(`${where}\n${String(error)}`));
    assert.equal(rowsOf(result), rows, where);
  }
}

export function rowsOf(result: {
  readonly rows: readonly unknown[];
  readonly numAffectedRows?: bigint;
}): number {
  return result.rows.length + Number(result.numAffectedRows ?? 0n);
}
