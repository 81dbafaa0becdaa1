/** An account that two replicas change at once, and what must hold after every step. */
import assert from 'node:assert/strict';
import { at } from '../../../../test/support/at.ts';
import { fc } from '../../../../test/support/property-tests.ts';
import { LEASE_MS } from '../../../src/domain/lease.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import type { Claim } from '../../../src/store/jobs/job-lease.ts';
import type { Stores } from '../../../src/store/stores.ts';
import {
  fundedAccount,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  resultOf,
  SERVICE_FAULT,
  sha256,
  storesOn,
} from '../fixtures.ts';
import { assertUsageAgrees } from '../usage/usage-agrees.ts';

/** One thing a replica does; `pick` chooses among what there is. */
interface Operation {
  readonly replica: 0 | 1;
  readonly act:
    | 'submit'
    | 'submit-url'
    | 'claim'
    | 'lapse'
    | 'store'
    | 'admit'
    | 'lose'
    | 'release'
    | 'succeed'
    | 'fail'
    | 'fail-retryable'
    | 'grant'
    | 'revoke'
    | 'sweep';
  readonly pick: number;
}

export const operation: fc.Arbitrary<Operation> = fc.record({
  replica: fc.constantFrom(0 as const, 1 as const),
  act: fc.constantFrom(
    'submit',
    'submit',
    'submit-url',
    'claim',
    'claim',
    'lapse',
    'store',
    'admit',
    'admit',
    'lose',
    'release',
    'succeed',
    'succeed',
    'fail',
    'fail-retryable',
    'grant',
    'revoke',
    'sweep',
  ),
  pick: fc.nat({ max: 40 }),
});

/** An account seen by two replicas, and every claim they ever held: the old ones are tried too. */
export class World {
  readonly #replicas: readonly [Stores, Stores];
  readonly #database: Database;
  readonly #account: string;
  readonly #claims: Claim[] = [];
  /** What was acknowledged, by job id. */
  readonly #ended = new Map<string, 'succeeded' | 'failed'>();

  private constructor(databases: readonly [Database, Database], account: string) {
    this.#database = databases[0];
    this.#replicas = [storesOn(databases[0]), storesOn(databases[1])];
    this.#account = account;
  }

  static async create(first: Database, second: Database, credits: number): Promise<World> {
    return new World([first, second], await fundedAccount(storesOn(first), credits));
  }

  async perform({ replica, act, pick }: Operation): Promise<void> {
    const stores = this.#replicas[replica];
    const { jobs, ledger } = stores;
    const claim = this.#claims[pick % Math.max(1, this.#claims.length)];
    switch (act) {
      case 'submit':
      case 'submit-url': {
        const sourceUrl = act === 'submit' ? null : 'https://a.example/';
        const idempotencyKeyHash = sha256(`${this.#account} ${pick % 6}`);
        await jobs.submit(newJob(this.#account, { idempotencyKeyHash, sourceUrl }), LIMITS);
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

  async #claim({ jobs }: Stores, replica: number, pick: number): Promise<void> {
    const open = (await jobs.listClaimable(1000)).filter(job => job.accountId === this.#account);
    if (open.length === 0) return;
    const won = await jobs.claim(at(open, pick % open.length), `replica-${replica}`, LEASE_MS);
    if (won === undefined) return;
    const rival = this.#claims.find(
      held => held.jobId === won.claim.jobId && held.fence === won.claim.fence,
    );
    assert.equal(rival, undefined, 'one fence was given out twice');
    this.#claims.push(won.claim);
  }

  async #use({ jobs }: Stores, claim: Claim, act: Operation['act']): Promise<void> {
    switch (act) {
      case 'lapse':
        await jobs.renew(claim, 0);
        return;
      case 'store':
        await jobs.inputStored(claim, newJob(this.#account, { id: claim.jobId }).input!);
        return;
      case 'admit':
        await jobs.admitted(claim);
        return;
      case 'lose':
        await jobs.attemptLost(claim, claim.fence % 2 === 0);
        return;
      case 'release':
        await jobs.release(claim);
        return;
      case 'succeed':
        if (await jobs.succeed(claim, resultOf(claim), 0, {})) this.#end(claim, 'succeeded');
        return;
      default: {
        const failure = act === 'fail' ? IMAGE_FAULT : SERVICE_FAULT;
        if (await jobs.fail(claim, failure)) this.#end(claim, 'failed');
      }
    }
  }

  #end(claim: Claim, state: 'succeeded' | 'failed'): void {
    assert.equal(this.#ended.get(claim.jobId) ?? state, state, 'a job ended twice, differently');
    this.#ended.set(claim.jobId, state);
  }

  async assertInvariants(): Promise<void> {
    const [{ ledger }] = this.#replicas;
    assert.deepEqual(await ledger.check(this.#account), []);
    const credits = await ledger.credits(this.#account);
    assert.ok(credits);
    const { available, reserved, sums } = credits;
    assert.ok(available >= 0 && reserved >= 0);
    assert.equal(available + reserved + sums.charge, sums.grant - sums.revoke);
    const succeeded = [...this.#ended.values()].filter(state => state === 'succeeded').length;
    assert.equal(sums.charge, succeeded, 'charges are the successes that were acknowledged');
    assert.equal(sums.release, this.#ended.size - succeeded);
    await assertUsageAgrees(this.#database, this.#account);
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
}
