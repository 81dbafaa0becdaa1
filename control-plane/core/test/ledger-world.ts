/** An account that two replicas change at once, with its invariants. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import type { Database } from '@matting/database/database.ts';
import { rowsOf } from '@matting/database/test/rows.ts';
import { type Claim, LEASE_MS } from '@matting/queue/lease-rules.ts';
import { at } from '@matting/test-support/at.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import type { ClaimableJob } from '../queue/queue.ts';
import type { Stores } from '../stores.ts';
import {
  creditsOf,
  fundedAccount,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  SERVICE_FAULT,
  sha256,
  storesOn,
  successOf,
} from './fixtures.ts';

const ACTS = [
  ...(['submit', 'start', 'submit-url', 'claim', 'lapse', 'store', 'admit', 'lose'] as const),
  ...(['release', 'succeed', 'fail', 'fail-retryable', 'grant', 'revoke', 'sweep'] as const),
];

interface Operation {
  readonly replica: 0 | 1;
  readonly act: (typeof ACTS)[number];
  readonly pick: number;
}

export const operation: fc.Arbitrary<Operation> = fc.record({
  replica: fc.constantFrom(0 as const, 1 as const),
  // Listed again to come twice as often.
  act: fc.constantFrom(...ACTS, 'claim', 'admit', 'succeed'),
  pick: fc.nat({ max: 40 }),
});

/** Steps follow each other; a step's operations run at once. */
export const HISTORY = fc.array(fc.array(operation, { minLength: 1, maxLength: 4 }), {
  minLength: 5,
  maxLength: 25,
  size: 'max',
});

/** Keeps every claim that the replicas held, to try old ones too. */
export class World {
  readonly #replicas: readonly Stores[];
  readonly #database: Database;
  readonly #account: string;
  readonly #claims: Claim[] = [];
  readonly #limits: typeof LIMITS;
  readonly #created = new Set<string>();
  readonly #ended = new Map<string, 'succeeded' | 'failed'>();

  private constructor(
    databases: readonly Database[],
    replicas: readonly Stores[],
    account: string,
    limits: typeof LIMITS,
  ) {
    this.#database = at(databases, 0);
    this.#replicas = replicas;
    this.#account = account;
    this.#limits = limits;
  }

  static async create(
    databases: readonly Database[],
    credits: number,
    limits = LIMITS,
    openStores: (database: Database) => Stores = storesOn,
  ): Promise<World> {
    const replicas = databases.map(database => openStores(database));
    const account = await fundedAccount(at(replicas, 0), credits);
    return new World(databases, replicas, account, limits);
  }

  get account(): string {
    return this.#account;
  }

  async perform({ replica, act, pick }: Operation): Promise<void> {
    const stores = at(this.#replicas, replica);
    const { jobs, queue, ledger } = stores;
    const claim = this.#claims[pick % Math.max(1, this.#claims.length)];
    switch (act) {
      case 'submit':
      case 'submit-url':
        await this.#submit(stores, act, pick);
        return;
      case 'start': {
        const id = await this.#submit(stores, act, pick);
        const own = (await queue.listClaimable(1000)).find(job => job.id === id);
        const won = own && (await this.#win(stores, own, replica));
        if (won !== undefined) await queue.admitted(won);
        return;
      }
      case 'claim':
        return this.#claim(stores, replica, pick);
      case 'grant':
        await ledger.grant(this.#account, 1 + (pick % 3), `grant ${pick}`);
        return;
      case 'revoke':
        await ledger.revoke(this.#account, 1 + (pick % 3), `revoke ${pick}`);
        return;
      case 'sweep':
        await jobs.takeExpiredResultBlobs(10);
        await jobs.removeFinalOlderThan(0, 10);
        return;
      default:
        if (claim !== undefined) await this.#use(stores, claim, act);
    }
  }

  async #submit(
    { queue }: Stores,
    act: Operation['act'],
    pick: number,
  ): Promise<string | undefined> {
    const sourceUrl = act === 'submit-url' ? 'https://a.example/' : null;
    const key = act === 'start' ? randomUUID() : pick % 6;
    const idempotencyKeyHash = sha256(`${this.#account} ${key}`);
    const job = newJob(this.#account, { idempotencyKeyHash, sourceUrl });
    const outcome = await queue.submit(job, this.#limits);
    if (outcome.kind !== 'created') return undefined;
    this.#created.add(outcome.job.id);
    return outcome.job.id;
  }

  async #claim(stores: Stores, replica: number, pick: number): Promise<void> {
    const open = (await stores.queue.listClaimable(1000)).filter(
      job => job.accountId === this.#account,
    );
    if (open.length > 0) await this.#win(stores, at(open, pick % open.length), replica);
  }

  async #win({ queue }: Stores, job: ClaimableJob, replica: number): Promise<Claim | undefined> {
    const won = await queue.claim(job, `replica-${replica}`, LEASE_MS);
    if (won === undefined) return undefined;
    const rival = this.#claims.find(
      held => held.jobId === won.claim.jobId && held.fence === won.claim.fence,
    );
    assert.equal(rival, undefined, 'one fence was given out twice');
    this.#claims.push(won.claim);
    return won.claim;
  }

  async #use({ queue }: Stores, claim: Claim, act: Operation['act']): Promise<void> {
    switch (act) {
      case 'lapse':
        await queue.renew(claim, 0);
        return;
      case 'store':
        await queue.inputStored(claim, newJob(this.#account, { id: claim.jobId }).input!);
        return;
      case 'admit':
        await queue.admitted(claim);
        return;
      case 'lose':
        await queue.attemptLost(claim, claim.fence % 2 === 0);
        return;
      case 'release':
        await queue.release(claim);
        return;
      case 'succeed':
        if (await queue.succeed(claim, successOf(claim, { resultTtlMs: 0 })))
          this.#end(claim, 'succeeded');
        return;
      default: {
        const failure = act === 'fail' ? IMAGE_FAULT : SERVICE_FAULT;
        if (await queue.fail(claim, failure)) this.#end(claim, 'failed');
      }
    }
  }

  #end(claim: Claim, state: 'succeeded' | 'failed'): void {
    assert.equal(this.#ended.get(claim.jobId) ?? state, state, 'a job ended twice, differently');
    this.#ended.set(claim.jobId, state);
  }

  async assertInvariants(): Promise<void> {
    const { ledger } = at(this.#replicas, 0);
    assert.deepEqual(await ledger.check(this.#account), []);
    const credits = await creditsOf({ ledger }, this.#account);
    assert.ok(credits);
    const { available, reserved, sums } = credits;
    assert.ok(available >= 0 && reserved >= 0);
    assert.equal(available + reserved + sums.charge, sums.grant - sums.revoke);
    const succeeded = [...this.#ended.values()].filter(state => state === 'succeeded').length;
    assert.equal(sums.charge, succeeded, 'charges are the successes that were acknowledged');
    assert.equal(sums.release, this.#ended.size - succeeded);
    assert.ok(reserved <= this.#limits.jobsInFlightMax);
    await this.#assertEntries(reserved);
    const keys = await this.#database.kysely
      .selectFrom('jobs')
      .select(eb => eb.fn.countAll<number>().as('jobs'))
      .where('account_id', '=', this.#account)
      .where('idempotency_key_hash', 'is not', null)
      .groupBy(['api_key_id', 'idempotency_key_hash'])
      .having(eb => eb.fn.countAll(), '>', 1)
      .execute();
    assert.deepEqual(keys, []);
  }

  async #assertEntries(reserved: number): Promise<void> {
    const { kysely } = this.#database;
    const entries = await kysely
      .selectFrom('ledger_entries')
      .select(['job_id', 'kind'])
      .where('account_id', '=', this.#account)
      .where('job_id', 'is not', null)
      .execute();
    const jobs = await rowsOf(kysely, 'jobs', { account_id: this.#account });
    const open = new Set(jobs.filter(job => job.finished_at === null).map(({ id }) => id));
    assert.equal(reserved, open.size);
    const byJob = Map.groupBy(entries, entry => entry.job_id ?? '');
    assert.deepEqual(new Set(byJob.keys()), this.#created, 'entries of exactly the jobs made');
    for (const [id, own] of byJob) {
      const end = this.#ended.get(id);
      assert.equal(open.has(id), end === undefined);
      const settled = end === undefined ? [] : [end === 'succeeded' ? 'charge' : 'release'];
      assert.deepEqual(own.map(({ kind }) => kind).sort(), [...settled, 'reserve'].sort());
    }
  }
}
