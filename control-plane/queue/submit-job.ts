/**
 * Submits a job: one transaction holds the funding (funding/) and inserts the job.
 *
 * The order of the statements:
 * 1. the account's row, by compare-and-set. It serialises an account's submissions, which keeps the
 *    balance, the number in flight and a key's cap. In 25 s of load, inserting first caused 86
 *    deadlocks on MySQL and 263 on MariaDB; this order caused none;
 * 2. the count of the API key's cap, if it has one, by compare-and-set;
 * 3. a read that tells whether a package uses the key for something else, the rows that the payload
 *    joins, then the job's row, whose unique key stops the slower of two requests;
 * 4. the ledger's entry, and commit;
 * 5. if 1, 2 or 3 refused, a read of the key: a twin may have taken the last credit for this
 *    request.
 */

import { CapReachedError } from '@matting/accounts/keys/key-caps.ts';
import {
  type Database,
  type Db,
  OvertakenError,
  query,
  type Schema,
} from '@matting/database/database.ts';
import { databaseErrorKind } from '@matting/database/engines.ts';
import { type KeptStatement, keepStatement, nowPlusMs } from '@matting/database/statements.ts';
import type { Insertable, Transaction } from 'kysely';
import type { FundingKind, HoldLimits, HoldRefusal } from './funding/funding.ts';
import { FUNDINGS } from './funding/fundings.ts';
import { type IdempotencyKey, isForgotten } from './idempotency.ts';
import type { JobClass, QueueJob } from './job.ts';
import { queuePositionMs } from './lanes.ts';

export interface SubmissionStep {
  /**
   * Whether the package uses this Idempotency-Key for something else; the queue then refuses the
   * job. The core calls it before it checks the request further, and again in the job's transaction
   * with the account's row locked. The package must lock that row first, too. One indexed read.
   */
  hasKey(database: Database, db: Db, apiKeyId: string, keyHash: string): Promise<boolean>;
}

export interface NewQueueJob {
  readonly id: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  /** SHA-256, hexadecimal. null: a job of a group has no key of its own. */
  readonly idempotencyKeyHash: string | null;
  /** SHA-256 of the request. A different request with the same key is a conflict. */
  readonly fingerprint: string;
  readonly class: JobClass;
  /** The day in which a package counted an UNPAID job. */
  readonly unpaidDayMs?: number | null | undefined;
  readonly group?: { readonly id: string; readonly item: number };
}

export interface KeyedJob extends NewQueueJob {
  readonly idempotencyKeyHash: string;
  readonly keyHasCap?: boolean;
}

type NewRow = Omit<Insertable<Schema['jobs']>, 'created_at' | 'queue_at'>;

export type PayloadColumns = Omit<NewRow, keyof ReturnType<typeof ownColumns>> & {
  readonly source_host: string | null;
};

export interface PayloadSubmission<New extends NewQueueJob, J> {
  fundingOf(job: New): FundingKind;
  /**
   * Must return the same columns for every job. `source_host`: host of the first download; null:
   * the job is ready.
   */
  columns(job: New): PayloadColumns;
  /**
   * Returns columns that depend on other rows. Reads these rows with the account's row locked, and
   * throws to refuse the job.
   */
  join(database: Database, tx: Db, job: New): Promise<Partial<NewRow>>;
  /** @returns the outcome of a refusal that `join` threw; undefined: another error */
  refusalOf(error: unknown): { readonly kind: 'refused' } | undefined;
  read(database: Database, db: Db, jobId: string): Promise<J | undefined>;
  readByKey(database: Database, db: Db, apiKeyId: string, keyHash: string): Promise<J | undefined>;
}

export type SubmitOutcome<J> =
  /** `exists`: another request with the key was first. */
  | { readonly kind: 'created' | 'exists'; readonly job: J }
  | HoldRefusal
  | { readonly kind: 'key-cap-reached'; readonly detail: string }
  | { readonly kind: 'key-taken' }
  | { readonly kind: 'refused' };

class KeyTakenError extends Error {}

type KeyedRow = Pick<QueueJob, 'id' | 'finishedAtMs' | 'expiresAtMs' | 'readAtMs'>;

const HASH = /^[0-9a-f]{64}$/;

export class JobSubmission<New extends KeyedJob, J extends KeyedRow> {
  readonly #database: Database;
  readonly #payload: PayloadSubmission<New, J>;
  readonly #insert: InsertJob<New>;
  readonly #steps: readonly SubmissionStep[];

  constructor(
    database: Database,
    payload: PayloadSubmission<New, J>,
    insert: InsertJob<New>,
    steps: readonly SubmissionStep[],
  ) {
    this.#database = database;
    this.#payload = payload;
    this.#insert = insert;
    this.#steps = steps;
  }

  submit(job: New, limits: HoldLimits): Promise<SubmitOutcome<J>> {
    return query(this.#database, db => this.#submit(db, job, limits));
  }

  isKeyTaken(apiKeyId: string, keyHash: string): Promise<boolean> {
    return query(this.#database, db => this.#isTaken(db, apiKeyId, keyHash));
  }

  /** First frees the key if its job ended more than `rememberedMs` ago. */
  async findByKey(apiKeyId: string, key: IdempotencyKey): Promise<J | undefined> {
    if (!HASH.test(key.hash)) return undefined;
    const { readByKey } = this.#payload;
    const read = () =>
      query(this.#database, db => readByKey(this.#database, db, apiKeyId, key.hash));
    const job = await read();
    if (job === undefined || !isForgotten(job, key)) return job;
    await query(this.#database, db =>
      db
        .updateTable('jobs')
        .set({ idempotency_key_hash: null })
        .where('id', '=', job.id)
        .where('idempotency_key_hash', '=', key.hash)
        .execute(),
    );
    // Another request may have freed the key and made the next job.
    return read();
  }

  async #submit(db: Db, job: New, limits: HoldLimits): Promise<SubmitOutcome<J>> {
    let refused: SubmitOutcome<J> | undefined;
    try {
      refused = await db.transaction().execute(tx => this.#make(tx, job, limits));
      if (refused.kind === 'created') return refused;
    } catch (error) {
      refused = this.#refusedBy(error);
    }
    const { id, apiKeyId, idempotencyKeyHash } = job;
    const { readByKey } = this.#payload;
    const twin = await readByKey(this.#database, db, apiKeyId, idempotencyKeyHash);
    // A twin with this id is our own row: an earlier round committed it and lost the answer.
    if (twin !== undefined) return { kind: twin.id === id ? 'created' : 'exists', job: twin };
    if (refused !== undefined) return refused;
    throw new OvertakenError(`a twin of job ${id} freed its key after it was in the way`);
  }

  async #make(tx: Transaction<Schema>, job: New, limits: HoldLimits): Promise<SubmitOutcome<J>> {
    const { id, apiKeyId, idempotencyKeyHash } = job;
    const database = this.#database;
    const payload = this.#payload;
    const { hold } = FUNDINGS[payload.fundingOf(job)];
    const refusal = await hold(database, tx, { ...job, ...limits }, async capWindowStartMs => {
      if (await this.#isTaken(tx, apiKeyId, idempotencyKeyHash)) throw new KeyTakenError();
      const joined = await payload.join(database, tx, job);
      await this.#insert(database, tx, job, { capWindowStartMs, joined });
    });
    if (refusal !== undefined) return refusal;
    const created = await payload.read(database, tx, id);
    if (created === undefined) throw new Error(`job ${id} is gone before its commit`);
    return { kind: 'created', job: created };
  }

  #refusedBy(error: unknown): SubmitOutcome<J> | undefined {
    if (error instanceof CapReachedError) return { kind: 'key-cap-reached', detail: error.detail };
    if (error instanceof KeyTakenError) return { kind: 'key-taken' };
    const refusal = this.#payload.refusalOf(error);
    if (refusal === undefined && databaseErrorKind(error) !== 'duplicate') throw error;
    return refusal;
  }

  async #isTaken(db: Db, apiKeyId: string, keyHash: string): Promise<boolean> {
    for (const step of this.#steps) {
      if (await step.hasKey(this.#database, db, apiKeyId, keyHash)) return true;
    }
    return false;
  }
}

export type InsertJob<New extends NewQueueJob> = (
  database: Database,
  tx: Transaction<Schema>,
  job: New,
  more: {
    /** Start of the cap window in which the job counts; null: no cap. */
    readonly capWindowStartMs: number | null;
    readonly joined?: Partial<NewRow>;
  },
) => Promise<void>;

type Row = NewRow & { readonly queue_shift: number };

export function jobInsertion<New extends NewQueueJob>(
  columnsOf: PayloadSubmission<New, unknown>['columns'],
): InsertJob<New> {
  const statement: KeptStatement<Row, unknown> = keepStatement(
    ({ kysely, nowMs }, { queue_shift, ...columns }) =>
      kysely.insertInto('jobs').values({
        ...columns,
        queue_at: nowPlusMs(nowMs, queue_shift),
        created_at: nowMs,
      }),
  );
  return async (database, tx, job, { capWindowStartMs, joined = {} }) => {
    const columns = columnsOf(job);
    const row: Row = {
      ...columns,
      ...ownColumns(job, columns.source_host, capWindowStartMs),
      queue_shift: queuePositionMs(job.class, 0),
      ...joined,
    };
    await tx.executeQuery(statement(database, row));
  };
}

function ownColumns(job: NewQueueJob, sourceHost: string | null, capWindowStartMs: number | null) {
  return {
    id: job.id,
    account_id: job.accountId,
    api_key_id: job.apiKeyId,
    idempotency_key_hash: job.idempotencyKeyHash,
    fingerprint: job.fingerprint,
    state: sourceHost === null ? ('ready' as const) : ('accepted' as const),
    class: job.class,
    fence: 0,
    lost_attempts: 0,
    lost_with_process: 0,
    takeovers: 0,
    cap_window_start: capWindowStartMs,
    playground_day: job.unpaidDayMs ?? null,
    batch_id: job.group?.id ?? null,
    batch_item: job.group?.item ?? null,
  };
}
