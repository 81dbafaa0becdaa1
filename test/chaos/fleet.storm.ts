/**
 * Every kind of process dies at random instants under mixed load, beside accounts that take all
 * they can, and in the end every accepted job is final, every credit right, every result there and
 * of its own image, and nothing is left over.
 *
 * `make chaos` runs it with many kills. MATTING_CHAOS_SEED repeats a run's choices; the instants at
 * which processes meet them are the machine's.
 */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Sweeper, type SweeperOptions } from '../../control-plane/src/services/sweeping/sweep.ts';
import { openDirectoryBlobStore } from '../../control-plane/src/storage/directory/directory-blob-store.ts';
import { at } from '../support/at.ts';
import { skipReason } from '../support/database.ts';
import { until } from '../support/running-service.ts';
import { ChaosCaller, type Delivery } from './chaos-caller.ts';
import { ChaosFleet, type Victim } from './chaos-fleet.ts';
import { HostileAccount } from './hostile-account.ts';
import { encode, MANNERS, type Manner, pictureOf } from './manners.ts';
import { SeededRandom } from './seeded-random.ts';

const KILLS_OF_EACH = Number(process.env.MATTING_CHAOS_KILLS ?? 2);
const SEED = Number(process.env.MATTING_CHAOS_SEED ?? 1);
const VICTIMS: readonly Victim[] = [
  'control plane',
  'node',
  'engine',
  'picture worker',
  'database',
];
const CALLERS = 16;
const HOSTILE_ACCOUNTS = 2;
/** For the jobs that hostile accounts left: each ends as soon as its source refuses it. */
const LEFT_JOBS_TIMEOUT_MS = 300_000;
/** Between kills; a node's start takes a few seconds. */
const PAUSE_MS = [300, 2500] as const;
/** At least one image ends in so many kills, however slow the machine is. */
const KILLS_AN_IMAGE = 5;
/** Two hours on: nothing that is unfinished is younger than the sweeper's patience. */
const LATER_MS = 2 * 3_600_000;

function mannerOf(index: number): Manner {
  return at(MANNERS, index % MANNERS.length);
}

/** The fleet's own sweeper has been round less than an hour ago. */
const ALWAYS_OURS: SweeperOptions['sweeps'] = {
  claim: async holder => ({ claim: { holder, fence: 1 }, walk: { part: 0, ageMs: null } }),
  renew: async () => true,
  release: async () => true,
  saveWalk: async () => true,
};

describe('a fleet under kills', { skip: skipReason('mysql') }, () => {
  const random = new SeededRandom(SEED);
  const deliveries = new Map<number, Delivery>();
  const hostile: HostileAccount[] = [];
  let fleet: ChaosFleet;
  let caller: ChaosCaller;

  before(async () => {
    fleet = await ChaosFleet.start({
      controlPlanes: 2,
      nodes: 2,
      env: {
        // Short, so that many waits are handed over to jobs.
        MATTING_SYNC_WAIT_MS: '3000',
        MATTING_REMOVEBG_WAIT_MS: '3000',
        // The hostile accounts' servers.
        MATTING_ALLOW_PRIVATE_ADDRESSES: 'true',
        MATTING_ALLOW_HTTP_CALLBACKS: 'true',
      },
    });
    caller = new ChaosCaller({ urls: fleet.urls, apiKey: fleet.apiKey, random });
    const picture = (await encode(pictureOf(0))).toString('base64');
    for (let index = 0; index < HOSTILE_ACCOUNTS; index += 1) {
      const account = await fleet.createAccount(`hostile-${index}`);
      hostile.push(await HostileAccount.start({ urls: fleet.urls, random, picture, ...account }));
    }
  });
  after(async () => {
    await Promise.all(hostile.map(account => account.stop()));
    await fleet?.close();
  });

  async function work(index: number): Promise<void> {
    const file = await encode(pictureOf(index));
    const key = `image-${index}`;
    const submissions = mannerOf(index).submissions(file, key);
    deliveries.set(index, await caller.deliver(key, submissions));
  }

  it('answers every request, whichever process dies', async t => {
    let going = true;
    let next = 0;
    const failures: unknown[] = [];
    const callers = Array.from({ length: CALLERS }, async () => {
      while (going) await work(next++).catch(error => failures.push(error));
    });
    const plan = random.shuffle(
      VICTIMS.flatMap(victim => Array<Victim>(KILLS_OF_EACH).fill(victim)),
    );
    let ended = 0;
    for (const [number, victim] of plan.entries()) {
      await delay(random.between(...PAUSE_MS));
      while (!(await fleet.kill(victim, random))) await delay(50);
      if (number % KILLS_AN_IMAGE !== 0) continue;
      // Where starts take longer than the pauses, nothing would ever be made.
      while (deliveries.size === ended && failures.length === 0) await delay(50);
      ended = deliveries.size;
    }
    await delay(PAUSE_MS[1]);
    going = false;
    await Promise.all(callers);
    await Promise.all(hostile.map(account => account.stop()));
    t.diagnostic(`seed ${SEED}: ${plan.length} kills, ${deliveries.size} images`);
    for (const account of hostile) t.diagnostic(`a hostile account: ${account.inWords()}`);
    assert.deepEqual(failures, [], fleet.logTail());
    assert.ok(deliveries.size > plan.length / KILLS_AN_IMAGE);
  });

  it('leaves no job open and no credit astray', async () => {
    const credits = await fleet.stores.ledger.credits(fleet.accountId);
    assert.equal(credits?.reserved, 0);
    assert.deepEqual(await fleet.stores.ledger.check(), []);
    const jobs = [...deliveries.values()].flatMap(({ jobIds }) => jobIds);
    assert.equal(new Set(jobs).size, jobs.length, 'a job of two keys');
    assert.equal(credits?.sums.reserve, jobs.length, 'a job that no caller was told of');
    const succeeded = [...deliveries.values()].filter(({ job }) => job.status === 'succeeded');
    assert.equal(credits?.sums.charge, succeeded.length);
    for (const { jobIds, job } of deliveries.values()) {
      const now = await caller.read(jobIds.at(-1)!);
      assert.deepEqual([now.status, now.result], [job.status, job.result]);
    }
  });

  it('leaves no job open and no credit astray of the hostile accounts', async () => {
    for (const { accountId, violations, answers } of hostile) {
      assert.deepEqual(violations, []);
      assert.ok([...answers.keys()].some(what => what === 'slow source 202'));
      await until(async () => (await fleet.stores.ledger.credits(accountId))?.reserved === 0, {
        timeoutMs: LEFT_JOBS_TIMEOUT_MS,
        what: 'the last job of a hostile account is final',
        detail: () => fleet.logTail(),
      });
      const credits = await fleet.stores.ledger.credits(accountId);
      assert.equal(credits?.sums.charge, await fleet.succeededJobs(accountId));
      assert.equal(credits.sums.reserve, credits.sums.charge + credits.sums.release);
    }
    assert.deepEqual(await fleet.stores.ledger.check(), []);
  });

  it('keeps every result, each of its own image, the same as every answer', async t => {
    let pictures = 0;
    for (const [index, { job, idempotencyKey, pictures: answers }] of deliveries) {
      if (job.status !== 'succeeded') {
        // Twice lost with its engine or worker: the verdict of the contract on such an image.
        assert.equal(job.error?.code, 'PROCESSING_FAILED', `${idempotencyKey} ${job.status}`);
        continue;
      }
      const link = new URL(job.result!.url);
      const answer = await fetch(`${fleet.urls[index % 2]}${link.pathname}`);
      assert.equal(answer.status, 200, idempotencyKey);
      const result = Buffer.from(await answer.arrayBuffer());
      const sha256 = createHash('sha256').update(result).digest('hex');
      const manner = mannerOf(index);
      const what = `${idempotencyKey}, ${manner.name}`;
      for (const whole of answers) assert.deepEqual(whole, [job.job_id, sha256], what);
      pictures += answers.length;
      await manner.requireResult(result, pictureOf(index)).catch((error: Error) => {
        assert.fail(`${what}: ${error.message}`);
      });
    }
    t.diagnostic(`${pictures} pictures as answers`);
    assert.ok(pictures > 0);
  });

  it('leaves no blob that no job names once it is swept', async () => {
    const blobStore = await openDirectoryBlobStore(fleet.directory, {
      nowMs: () => Date.now() + LATER_MS,
    });
    const names = async () => {
      const found: string[] = [];
      for await (const name of blobStore.listOlderThan(0)) found.push(name);
      return found;
    };
    const sweeper = new Sweeper({
      jobStore: fleet.stores.jobs,
      outbox: fleet.stores.webhookOutbox,
      blobStore,
      sweeps: ALWAYS_OURS,
      holder: 'chaos',
      jobRetentionMs: 30 * 24 * 3_600_000,
      logger: {
        info: () => undefined,
        error: (fields: object) => assert.fail(JSON.stringify(fields)),
      },
    });
    for (let left = -1, now = (await names()).length; now !== left; now = (await names()).length) {
      left = now;
      await sweeper.sweep();
    }
    await sweeper.stop();
    const kept = await names();
    assert.deepEqual(await fleet.stores.jobs.referencedBlobs(kept), new Set(kept));
    assert.equal(kept.length, await fleet.succeededJobs());
  });
});
