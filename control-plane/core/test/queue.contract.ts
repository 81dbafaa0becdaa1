/** Holds for every queue, in a database or in memory; the suite of each calls it. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { UNPAID } from '@matting/queue/job.ts';
import { ASYNC_HEAD_START_MS, type LaneRead } from '@matting/queue/lanes.ts';
import { type Claim, LEASE_MS } from '@matting/queue/lease-rules.ts';
import type { ExecutionContext } from 'ava';
import type { NewJob } from '../queue/matting-submission.ts';
import type { OpenJob, WorkerQueue } from '../queue/queue.ts';
import {
  BACKGROUND_URL,
  HOUR_MS,
  IMAGE_FAULT,
  resultOf,
  SERVICE_FAULT,
  storedBackground,
  storedInput,
  successOf,
  WITH_PICTURE,
} from './fixtures.ts';

/** Default: a stored image of 3 megapixels. */
export type AskedJob = Pick<NewJob, 'accountId' | 'apiKeyId' | 'class'> &
  Partial<Pick<NewJob, 'input' | 'sourceUrl' | 'model' | 'finishing' | 'background'>>;

export interface QueueWorld {
  readonly queue: WorkerQueue;
  account(): Promise<string>;
  add(job: AskedJob, ageMs: number): Promise<OpenJob>;
  find(jobId: string): Promise<OpenJob>;
}

type Asked = Partial<AskedJob> & { readonly ageMs?: number };

/** An API key with its jobs; other tests' jobs are in the same queue. */
class Caller {
  readonly queue: WorkerQueue;
  readonly apiKeyId = randomUUID().slice(0, 12);
  readonly find: QueueWorld['find'];
  readonly #world: QueueWorld;
  #accountId: string | undefined;

  constructor(world: QueueWorld) {
    this.#world = world;
    this.queue = world.queue;
    this.find = world.find;
  }

  async add({ ageMs = 0, ...asked }: Asked = {}): Promise<OpenJob> {
    this.#accountId ??= await this.#world.account();
    const whose = { accountId: this.#accountId, apiKeyId: this.apiKeyId };
    return this.#world.add({ ...whose, class: 'async', ...asked }, ageMs);
  }

  async lanes() {
    return (await this.queue.listLanes()).filter(({ apiKeyId }) => apiKeyId === this.apiKeyId);
  }

  async listed(among: Partial<LaneRead> = {}, limit = 1000) {
    const lanes = (await this.lanes()).map(lane => ({ ...lane, ...among }));
    return this.queue.listClaimable(limit, lanes);
  }

  async claim({ id }: { readonly id: string }, holder = 'replica-1', leaseMs = LEASE_MS) {
    const won = await this.queue.claim(await this.find(id), holder, leaseMs);
    assert.ok(won, 'the claim was lost');
    return won.claim;
  }

  async running(asked: Asked = {}): Promise<Claim> {
    const claim = await this.claim(await this.add(asked));
    assert.ok(await this.queue.admitted(claim));
    return claim;
  }

  /** Tries every write under a claim, with ends that no test makes before. */
  async refusals(t: ExecutionContext, claim: Claim): Promise<void> {
    const { queue } = this;
    const writes = {
      renew: () => queue.renew(claim, LEASE_MS),
      inputStored: () => queue.inputStored(claim, storedInput(claim.jobId)),
      backgroundStored: () => queue.backgroundStored(claim, storedBackground(claim.jobId)),
      admitted: () => queue.admitted(claim),
      attemptLost: () => queue.attemptLost(claim, true),
      succeed: () => queue.succeed(claim, successOf(claim)),
      fail: () => queue.fail(claim, { ...IMAGE_FAULT, code: 'NO_SUBJECT' }),
      release: () => queue.release(claim),
    };
    for (const [name, write] of Object.entries(writes)) t.falsy(await write(), name);
  }
}

type Body = (t: ExecutionContext, by: Caller, other: Caller) => Promise<unknown>;

const SOURCE = { sourceUrl: 'https://pictures.example/1.png' };
const CALLS = ['first', 'second'];
const idsOf = (jobs: readonly Pick<OpenJob, 'id'>[]) => jobs.map(({ id }) => id);

export function testQueue(
  test: (title: string, body: (t: ExecutionContext) => unknown) => void,
  worldOf: () => QueueWorld,
): void {
  const caller = () => new Caller(worldOf());
  for (const [title, body] of Object.entries(TESTS)) test(title, t => body(t, caller(), caller()));
  for (const [job, begun] of Object.entries(BEGUN)) {
    test(`a fence › serves the last claim and its holder alone: a job ${job}`, async t => {
      const by = caller();
      const old = await begun(by);
      assert.ok(await by.queue.renew(old, 0));
      const young = await by.claim({ id: old.jobId }, old.holder);
      const before = await by.find(old.jobId);
      await by.refusals(t, old);
      await by.refusals(t, { ...young, holder: 'stranger' });
      t.deepEqual({ ...(await by.find(old.jobId)), readAtMs: before.readAtMs }, before);
      t.true(await by.queue.fail(young, IMAGE_FAULT));
      await by.refusals(t, old);
    });
  }
}

const BEGUN: Readonly<Record<string, (by: Caller) => Promise<Claim>>> = {
  fetching: async by => by.claim(await by.add(SOURCE)),
  'that has its input': async by => {
    const claim = await by.claim(await by.add(SOURCE));
    assert.ok(await by.queue.inputStored(claim, storedInput(claim.jobId)));
    return claim;
  },
  ready: async by => by.claim(await by.add()),
  running: by => by.running(),
};

const TESTS: Readonly<Record<string, Body>> = {
  'a claim › is won once, raises the fence, and hides the job': async (t, by) => {
    const { queue } = by;
    const job = await by.add();
    const [listed] = await by.listed();
    assert.ok(listed);
    const { id, input } = job;
    t.like(listed, { id, fence: 0, state: 'ready', input });
    const claims = ['replica-1', 'replica-2'].map(holder => queue.claim(listed, holder, LEASE_MS));
    const [won, ...more] = (await Promise.all(claims)).filter(each => each !== undefined);
    assert.ok(won && more.length === 0);
    t.deepEqual([won.job.fence, won.job.lease?.holder], [won.claim.fence, won.claim.holder]);
    t.is(await queue.claim({ id, fence: 1 }, 'replica-3', LEASE_MS), undefined);
    t.deepEqual(await by.listed(), []);
    t.true(await queue.release(won.claim));
    const stale = await queue.claim(listed, 'replica-3', LEASE_MS);
    t.is(stale, undefined, 'a listing from before that claim would repeat its fence');
  },

  'a claim › takes over a lease that ran out, and counts it': async (t, by) => {
    const old = await by.running();
    await by.queue.renew(old, 0);
    const [listed] = await by.listed();
    const won = await by.queue.claim(listed!, 'heir', LEASE_MS);
    t.like(won?.job, { takeovers: 1, state: 'running', fence: 2 }, 'no way back to queued');
    t.true(await by.queue.succeed(won!.claim, successOf(won!.claim)));
  },

  'a claim › of an ended job is none, and no listing has it': async (t, by) => {
    const claim = await by.running();
    t.true(await by.queue.fail(claim, IMAGE_FAULT));
    const ended = await by.find(claim.jobId);
    t.is(await by.queue.claim(ended, 'replica-2', LEASE_MS), undefined);
    t.deepEqual([await by.lanes(), await by.listed()], [[], []]);
  },

  'a lease › is renewed late, too, while nobody replaced its holder': async (t, by) => {
    const claim = await by.claim(await by.add(), 'replica-1', 0);
    t.is((await by.listed()).length, 1);
    t.true(await by.queue.renew(claim, HOUR_MS));
    const { lease, readAtMs } = await by.find(claim.jobId);
    t.true(lease !== null && lease.expiresAtMs > readAtMs + HOUR_MS / 2);
    t.deepEqual(await by.listed(), []);
  },

  'a lease › that is given back costs nothing': async (t, by) => {
    const job = await by.add();
    const claim = await by.claim(job);
    t.true(await by.queue.release(claim));
    await by.refusals(t, claim);
    t.like(await by.find(job.id), { lease: null, takeovers: 0, lostAttempts: 0, state: 'ready' });
    t.is((await by.claim(job)).fence, 2);
    t.is((await by.find(job.id)).takeovers, 0);
  },

  'a lease › that the operator ends is lost, and counts nothing': async (t, by) => {
    const claim = await by.running();
    const { jobId, holder } = claim;
    t.deepEqual(await by.queue.endLease(jobId), { kind: 'ended', holder });
    t.deepEqual(await by.queue.endLease(jobId), { kind: 'not-leased' });
    await by.refusals(t, claim);
    t.like(await by.find(jobId), { state: 'running', fence: 1, takeovers: 0, lostAttempts: 0 });
    await by.queue.fail(await by.claim({ id: jobId }), IMAGE_FAULT);
    t.deepEqual(await by.queue.endLease(jobId), { kind: 'final', state: 'failed' });
    t.deepEqual(await by.queue.endLease(randomUUID()), { kind: 'unknown' });
  },

  'an input › that is stored makes the job ready, twice for once': async (t, by) => {
    const claim = await by.claim(await by.add(SOURCE));
    t.is((await by.find(claim.jobId)).state, 'fetching');
    t.is(await by.queue.admitted(claim), false, 'nothing to admit yet');
    const input = storedInput(claim.jobId);
    for (const call of CALLS) t.true(await by.queue.inputStored(claim, input), call);
    t.false(await by.queue.inputStored(claim, { ...input, blob: 'inputs/other' }));
    const { state, lease, input: stored } = await by.find(claim.jobId);
    t.deepEqual([state, lease?.holder, stored], ['ready', claim.holder, input]);
  },

  'an input › and a background are downloaded each for its host': async (t, by) => {
    const { id, sourceHost } = await by.add({ ...SOURCE, ...WITH_PICTURE, ...BACKGROUND_URL });
    const first = await by.claim({ id });
    const { url: backgroundUrl } = BACKGROUND_URL.background;
    const store = () => by.queue.inputStored(first, storedInput(id), { backgroundUrl });
    for (const call of CALLS) t.true(await store(), call);
    t.true(await by.queue.release(first));
    const [between] = await by.listed();
    t.like(between, { state: 'fetching', input: storedInput(id) });
    t.not(between?.sourceHost, sourceHost);
    const second = await by.claim({ id });
    t.is(await by.queue.admitted(second), false, 'not before its background');
    const input = storedBackground(id);
    for (const call of CALLS) t.true(await by.queue.backgroundStored(second, input), call);
    t.like(await by.find(id), { state: 'ready', background: { input } });
  },

  'an input › that is there leaves the background alone to download': async (t, by) => {
    const job = await by.add({ ...WITH_PICTURE, ...BACKGROUND_URL });
    t.like(job, { state: 'accepted', sourceUrl: null, background: BACKGROUND_URL.background });
    t.true(await by.queue.backgroundStored(await by.claim(job), storedBackground(job.id)));
    t.is((await by.find(job.id)).state, 'ready');
  },

  'an admission › sets the start once': async (t, by) => {
    const claim = await by.running();
    const first = await by.find(claim.jobId);
    while ((await by.find(claim.jobId)).readAtMs <= first.readAtMs);
    t.true(await by.queue.admitted(claim));
    t.like(await by.find(claim.jobId), { state: 'running', startedAtMs: first.startedAtMs });
  },

  'a lost attempt › is counted, and gives the lease back': async (t, by) => {
    const claim = await by.running();
    const once = await by.queue.attemptLost(claim, false);
    t.like(once, { lostAttempts: 1, lostWithProcess: 0, lease: null, state: 'running' });
    await by.refusals(t, claim);
    const twice = await by.queue.attemptLost(await by.claim({ id: claim.jobId }), true);
    t.like(twice, { lostAttempts: 2, lostWithProcess: 1, takeovers: 0, state: 'running' });
  },

  'a success › is one, however often it is said': async (t, by) => {
    const claim = await by.running();
    const result = resultOf(claim);
    for (const call of CALLS)
      t.true(await by.queue.succeed(claim, successOf(claim, { result })), call);
    await by.refusals(t, claim);
    t.like(await by.find(claim.jobId), { state: 'succeeded', lease: null, input: null, fence: 1 });
  },

  'a failure › ends any open job, a success one that runs': async (t, by) => {
    const waiting = [await by.claim(await by.add(SOURCE)), await by.claim(await by.add())];
    for (const claim of waiting) {
      t.false(await by.queue.succeed(claim, successOf(claim)));
    }
    for (const claim of [...waiting, await by.running()]) {
      for (const call of CALLS) t.true(await by.queue.fail(claim, SERVICE_FAULT), call);
      await by.refusals(t, claim);
      t.like(await by.find(claim.jobId), { state: 'failed', lease: null, input: null });
    }
    t.deepEqual(await by.lanes(), []);
  },

  'lanes › are of a key and class, with their image or without': async (t, by) => {
    const first = await by.add({ ageMs: 1000 });
    for (const asked of [{}, SOURCE, { class: 'sync' }, { class: UNPAID }] as const) {
      await by.add(asked);
    }
    await by.claim(first);
    const lanes = await by.lanes();
    t.is(lanes.length, 4);
    const lane = lanes.find(each => each.class === 'async' && !each.needsDownload);
    const firstQueueAtMs = first.createdAtMs + ASYNC_HEAD_START_MS;
    t.like(lane, { accountId: first.accountId, firstQueueAtMs }, 'of its oldest job');
    t.is((await by.listed()).length, 4, 'which is claimed');
  },

  'lanes › offer sync first, then the oldest, unpaid jobs too': async (t, by) => {
    const late = await by.add({ class: 'sync' });
    const unpaid = await by.add({ class: UNPAID, ageMs: 3 * ASYNC_HEAD_START_MS });
    const older = await by.add({ ageMs: ASYNC_HEAD_START_MS + 1000 });
    const oldest = await by.add({ ageMs: 2 * ASYNC_HEAD_START_MS });
    const sync = await by.add({ class: 'sync', ageMs: ASYNC_HEAD_START_MS + 500 });
    const order = idsOf([unpaid, sync, oldest, older, late]);
    t.deepEqual(idsOf(await by.listed()), order);
    t.deepEqual(idsOf(await by.listed({}, 3)), idsOf([unpaid, sync, oldest]));
  },

  'lanes › share a listing, and many jobs of one hide none of another': async (t, by) => {
    const many = [];
    for (let count = 0; count < 5; count += 1) many.push(await by.add({ ageMs: 10_000 - count }));
    const other = await by.add({ class: 'sync' });
    const listed = idsOf(await by.listed({}, 4));
    t.deepEqual(listed.sort(), idsOf([...many.slice(0, 2), other]).sort());
    t.deepEqual(await by.queue.listClaimable(4, []), []);
  },

  'lanes › pass over hosts that are full': async (t, by) => {
    const of = (host: string) => by.add({ sourceUrl: `https://${host}/${randomUUID()}` });
    const [slow, fast] = [await of('slow.example'), await of('fast.example')];
    await of('slow.example:443');
    assert.ok(slow.sourceHost);
    t.deepEqual(idsOf(await by.listed({ exceptHosts: [slow.sourceHost] })), [fast.id]);
  },

  'lanes › pass over jobs that name a model': async (t, by) => {
    const heavy = await by.add({ model: 'heavy', ageMs: 1000 });
    const plain = await by.add();
    t.deepEqual(idsOf(await by.listed()), idsOf([heavy, plain]));
    t.deepEqual(idsOf(await by.listed({ unboundOnly: true })), [plain.id]);
  },

  'the queue › is measured by account and model, in what waits': async (t, by, other) => {
    const sized = (width: number | null, height: number | null) => ({
      input: { ...storedInput(randomUUID()), width, height },
    });
    const { accountId } = await by.add();
    for (const asked of [SOURCE, sized(null, null), sized(10, 10)]) await by.add(asked);
    const lost = await by.running();
    await by.running();
    await by.add({ class: UNPAID });
    t.truthy(await by.queue.attemptLost(lost, false));
    const theirs = await other.add({ ageMs: 60_000 });
    const queued = await by.queue.queued();
    // Not downloaded: 4; unknown size: 100; tiny: 1.
    const cost = 3 + 4 + 100 + 1 + 3 + 3;
    t.deepEqual(queued.byAccount.get(accountId), { jobs: 6, cost, unfetched: 1 });
    const sumOf = (what: 'jobs' | 'cost') =>
      [...queued.byAccount.values()].reduce((sum, each) => sum + each[what], 0);
    t.deepEqual([queued.jobs, queued.cost], [sumOf('jobs'), sumOf('cost')]);
    t.true(queued.oldestAgeMs >= 60_000);
    await other.add({ model: 'fine' });
    const { byAccount, byModel } = await by.queue.queued();
    t.deepEqual(byAccount.get(theirs.accountId), { jobs: 2, cost: 6, unfetched: 0 });
    t.deepEqual([byModel.get('fine'), byModel.get(null)], [3, queued.byModel.get(null)]);
  },

  'the queue › measures recent work by its results, without failures': async (t, by) => {
    const before = await by.queue.doneWithin(60_000);
    for (const claim of [await by.running(), await by.running()]) {
      t.true(await by.queue.succeed(claim, successOf(claim)));
    }
    t.true(await by.queue.fail(await by.running(), IMAGE_FAULT));
    const after = await by.queue.doneWithin(60_000);
    t.deepEqual([after.jobs - before.jobs, after.cost - before.cost], [2, 6]);
    t.deepEqual(await by.queue.doneWithin(-1000), { jobs: 0, cost: 0 }, 'not within it');
  },
};
