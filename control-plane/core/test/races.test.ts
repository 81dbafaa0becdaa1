/** Each replica is a process. */
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import ava from 'ava';
import {
  assertBalanced,
  creditsOf,
  fundedAccount,
  newJob,
  onStores,
  sha256,
  storesOn,
  submitted,
} from './fixtures.ts';
import type { RaceTask, SubmitAnswer } from './race-worker.ts';

const test = ava.serial;

const REPLICAS = 3;

class Replica {
  readonly #child: ChildProcess;
  readonly #exited: Promise<unknown[]>;
  readonly #answers: AsyncIterator<string>;

  constructor(url: string) {
    const program = path.join(import.meta.dirname, 'race-worker.ts');
    this.#child = spawn(process.execPath, [program, url], { stdio: ['pipe', 'pipe', 'inherit'] });
    // Listens from the start, since the child may die during a test.
    this.#exited = once(this.#child, 'exit');
    this.#answers = createInterface({ input: this.#child.stdout! })[Symbol.asyncIterator]();
  }

  async answer(): Promise<unknown> {
    const { value, done } = await this.#answers.next();
    assert.ok(!done, 'the replica died');
    return JSON.parse(value);
  }

  perform(task: RaceTask): Promise<unknown> {
    this.#child.stdin?.write(`${JSON.stringify(task)}\n`);
    return this.answer();
  }

  async close(): Promise<void> {
    this.#child.stdin?.end();
    assert.deepEqual(await this.#exited, [0, null]);
  }
}

onStores(test, 'races', (test, { databases, stores }) => {
  let replicas: Replica[] = [];

  test.before(async () => {
    replicas = Array.from({ length: REPLICAS }, () => new Replica(databases.url()));
    await Promise.all(replicas.map(replica => replica.answer()));
  });
  test.after.always(() => Promise.all(replicas.map(replica => replica.close())));

  const openSeveral = () =>
    Promise.all(Array.from({ length: 3 }, async () => storesOn(await databases.open())));

  function submitAll(jobsOf: (replica: number) => ReturnType<typeof newJob>[]) {
    return Promise.all(
      replicas.map((replica, index) => replica.perform({ task: 'submit', jobs: jobsOf(index) })),
    ) as Promise<SubmitAnswer[][]>;
  }

  test('twins with one key and one credit make one job, and nobody is told to pay', async t => {
    for (let round = 0; round < 5; round++) {
      const account = await fundedAccount(stores, 1);
      const idempotencyKeyHash = sha256(`twins ${round}`);
      const twins = () => Array.from({ length: 17 }, () => newJob(account, { idempotencyKeyHash }));
      const answers = (await submitAll(twins)).flat();
      const kinds = Map.groupBy(answers, answer => answer.kind);
      t.is(kinds.get('created')?.length, 1);
      t.is(kinds.get('exists')?.length, 17 * REPLICAS - 1);
      t.is(new Set(answers.map(answer => answer.id)).size, 1);
      t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
      t.is((await creditsOf(stores, account))?.sums.reserve, 1);
    }
    await assertBalanced(stores);
  });

  test('N credits and 4 N submissions make N jobs', async t => {
    const credits = 15;
    const account = await fundedAccount(stores, credits);
    const answers = (
      await submitAll(() => Array.from({ length: (4 * credits) / REPLICAS }, () => newJob(account)))
    ).flat();
    const kinds = Map.groupBy(answers, answer => answer.kind);
    t.is(kinds.get('created')?.length, credits);
    t.is(kinds.get('insufficient-credits')?.length, 3 * credits);
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: credits });
    await assertBalanced(stores);
  });

  test('every open job is ended once, by one of the replicas', async t => {
    const account = await fundedAccount(stores, 40);
    const ids: string[] = [];
    for (let index = 0; index < 40; index++) {
      ids.push((await submitted(stores, newJob(account))).id);
    }
    const finished = (await Promise.all(
      replicas.map(replica => replica.perform({ task: 'finish', accountId: account })),
    )) as string[][];
    t.deepEqual(finished.flat().sort(), ids.sort());
    const credits = await creditsOf(stores, account);
    t.is(credits?.reserved, 0);
    t.is(credits!.sums.charge + credits!.sums.release, 40);
    t.is(credits!.available, 40 - credits!.sums.charge);
    await assertBalanced(stores);
  });

  test('the same grant entered by several at once counts once', async t => {
    const account = await fundedAccount(stores, 0);
    const writers = [stores, ...(await openSeveral())];
    const references = Array.from({ length: 10 }, (_, index) => `purchase ${index % 5}`);
    const outcomes = await Promise.all(
      writers.flatMap(({ ledger }) =>
        references.map(reference => ledger.grant(account, 7, reference)),
      ),
    );
    t.is(outcomes.filter(({ kind }) => kind === 'entered').length, 5);
    t.deepEqual(await stores.ledger.balances(account), { available: 35, reserved: 0 });
    await assertBalanced(stores);
  });
});
