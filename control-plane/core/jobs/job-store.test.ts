import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { rowsOf, setIn } from '@matting/database/test/rows.ts';
import { publicState } from '@matting/queue/job.ts';
import { at } from '@matting/test-support/at.ts';
import { fc } from '@matting/test-support/property-tests.ts';
import ava from 'ava';
import { needsOf } from '../dispatch/job-needs.ts';
import type { NewJob } from '../queue/matting-submission.ts';
import { queuedMegapixels } from '../queue/queue-bound.ts';
import type { Stores } from '../stores.ts';
import {
  BACKGROUND_URL,
  claimed,
  creditsOf,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  LIMITS,
  newJob,
  onBalancedStores,
  onStoresInCi,
  reread,
  resultOf,
  running,
  runningOf,
  sha256,
  storedBackground,
  storedInput,
  submitted,
  successOf,
  WITH_PICTURE,
} from '../test/fixtures.ts';
import { backgroundBlob, hintsBlob, jobOfBackground, thumbnailBlob } from './blob-names.ts';
import type { Job } from './job.ts';
import { jobActivity } from './job-activity.ts';

const test = ava.serial;

onBalancedStores(test, 'jobs', (test, { database, stores }) => {
  test('submission › refuses without a credit, and remembers nothing', async t => {
    const account = await fundedAccount(stores, 0);
    const job = newJob(account);
    t.deepEqual(await stores.queue.submit(job, LIMITS), { kind: 'insufficient-credits' });
    t.is(await stores.jobs.find(job.id), undefined);
    await stores.ledger.grant(account, 1, 'later');
    t.is((await stores.queue.submit(job, LIMITS)).kind, 'created');
  });

  test('submission › refuses both sources and none', async t => {
    const account = await fundedAccount(stores, 1);
    const id = randomUUID();
    const both = newJob(account, {
      id,
      sourceUrl: 'https://a.example/',
      input: storedInput(id),
    });
    await t.throwsAsync(stores.queue.submit(both, LIMITS), { message: /either/ });
    await t.throwsAsync(stores.queue.submit({ ...both, input: null, sourceUrl: null }, LIMITS));
    t.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 0 });
  });

  test('submission › refuses an account that does not exist', async t => {
    await t.throwsAsync(stores.queue.submit(newJob(randomUUID()), LIMITS), {
      message: /does not exist/,
    });
  });

  test('submission › reserves one credit and keeps every field', async t => {
    const account = await fundedAccount(stores, 5);
    const job = newJob(account, { class: 'sync', outputFormat: 'avif' });
    const created = await submitted(stores, job);
    t.deepEqual(await stores.ledger.balances(account), { available: 4, reserved: 1 });
    const { class: _, ...kept } = job;
    const given = { state: 'ready', lease: null, fence: 0, startedAtMs: null, class: 'sync' };
    t.like(created, { ...kept, ...given } as never);
    t.true(created.readAtMs >= created.createdAtMs);
    t.deepEqual({ ...(await reread(stores, job.id)), readAtMs: created.readAtMs }, created);
  });

  test('submission › takes a URL as it is, and makes the job accepted', async t => {
    const sourceUrl = `https://bücher.example/${'é'.repeat(1000)}?q='"\\%00`;
    const created = await submitted(stores, newJob(await fundedAccount(stores, 1), { sourceUrl }));
    t.is(created.state, 'accepted');
    t.is(created.sourceUrl, sourceUrl);
  });

  test('submission › finds the earlier job of a key and leaves the credits alone', async t => {
    const account = await fundedAccount(stores, 1);
    const first = await submitted(stores, newJob(account));
    const twin = newJob(account, { idempotencyKeyHash: first.idempotencyKeyHash! });
    const outcome = await stores.queue.submit(twin, LIMITS);
    t.is(outcome.kind, 'exists');
    t.is((outcome as { job: { id: string } }).job.id, first.id);
    t.deepEqual(await stores.ledger.balances(account), { available: 0, reserved: 1 });
  });

  test('submission › repeated by itself after a lost answer is the same success', async t => {
    const account = await fundedAccount(stores, 2);
    const job = newJob(account);
    await submitted(stores, job);
    await submitted(stores, job);
    t.deepEqual(await stores.ledger.balances(account), { available: 1, reserved: 1 });
  });

  test('submission › keeps apart the keys that a collation would merge, and API keys', async t => {
    const account = await fundedAccount(stores, 10);
    const hashes = ['abc', 'ABC', 'ábc', 'abc ', 'a', 'a '].map(sha256);
    for (const idempotencyKeyHash of hashes) {
      await submitted(stores, newJob(account, { idempotencyKeyHash }));
    }
    const idempotencyKeyHash = at(hashes, 0);
    await submitted(stores, newJob(account, { idempotencyKeyHash, apiKeyId: 'KEY000000001' }));
    t.is(
      await stores.queue.findByKey('key000000001', { hash: idempotencyKeyHash.toUpperCase() }),
      undefined,
    );
  });

  test('lookups › find nothing for a malformed id, token or hash', async t => {
    const { id } = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    const odd = ['', 'x', '日本', `${id} `, id.toUpperCase(), `${id}'--`, '\u0000', '%'];
    for (const text of odd) {
      t.is(await stores.jobs.find(text), undefined);
      t.is(await stores.jobs.findForKey(text, 'key000000001'), undefined);
      t.is(await stores.jobs.findByResultToken(text), undefined);
      t.is(await stores.queue.findByKey('key000000001', { hash: text }), undefined);
    }
  });

  test('lookups › show a job to its own key alone', async t => {
    const { id } = await submitted(stores, newJob(await fundedAccount(stores, 1)));
    t.is((await stores.jobs.findForKey(id, 'key000000001'))?.id, id);
    t.is(await stores.jobs.findForKey(id, 'key000000002'), undefined);
    t.is(await stores.jobs.findForKey(id, 'KEY000000001'), undefined);
  });

  test('retention › a result expires by the clock; its name is taken once, the row stays', async t => {
    const { account, job, claim } = await runningOf(stores, 2);
    const result = resultOf(claim);
    await stores.queue.succeed(claim, successOf(claim, { result, resultTtlMs: 0 }));
    t.is(publicState(await reread(stores, job.id)), 'expired', 'before any sweep');
    const kept = await running(stores, newJob(account));
    await stores.queue.succeed(kept.claim, successOf(kept.claim));
    t.deepEqual(await stores.jobs.takeExpiredResultBlobs(1000), [result.blob]);
    t.deepEqual(await stores.jobs.takeExpiredResultBlobs(1000), []);
    const swept = await stores.jobs.findByResultToken(result.sealedToken);
    t.is(publicState(swept!), 'expired');
    t.is(swept!.result, null);
    t.truthy((await reread(stores, kept.job.id)).result);
  });

  test('retention › a thumbnail is named and goes with its result, whichever way that goes', async t => {
    const account = await fundedAccount(stores, 4);
    const succeeded = async (thumbnailBytes: number | null, resultTtlMs: number) => {
      const { claim } = await running(stores, newJob(account));
      const result = { ...resultOf(claim), thumbnailBytes };
      await stores.queue.succeed(claim, successOf(claim, { result, resultTtlMs }));
      return result.blob;
    };
    const none = await succeeded(null, HOUR_MS);
    const live = await succeeded(2000, HOUR_MS);
    const names = [thumbnailBlob(none), thumbnailBlob(live), live, none, 'results/else-thumbnail'];
    const named = await stores.jobs.referencedBlobs(names);
    t.deepEqual([...named], [thumbnailBlob(live), live, none]);
    const alone = await stores.jobs.referencedBlobs([thumbnailBlob(live)]);
    t.deepEqual([...alone], [thumbnailBlob(live)], 'the result was not asked for');
    const expired = await succeeded(2000, 0);
    t.deepEqual(await stores.jobs.takeExpiredResultBlobs(1000), [expired, thumbnailBlob(expired)]);
    t.is((await stores.jobs.referencedBlobs([thumbnailBlob(expired)])).size, 0);
    const old = await succeeded(2000, 0);
    const { blobs } = await stores.jobs.removeFinalOlderThan(0, 1000);
    t.deepEqual(blobs, [old, thumbnailBlob(old)]);
  });

  test('retention › rows go after their time with their outbox; the ledger stays and adds up', async t => {
    const account = await fundedAccount(stores, 3);
    const callback = { url: 'https://a.example/hook', secret: null, secretKeyId: null };
    const gone = await running(stores, newJob(account, { callback }));
    await stores.queue.succeed(gone.claim, successOf(gone.claim, { resultTtlMs: 0 }));
    const failed = await running(stores, newJob(account));
    await stores.queue.fail(failed.claim, IMAGE_FAULT);
    const open = await running(stores, newJob(account));
    const unswept = await running(stores, newJob(account));
    await stores.queue.succeed(unswept.claim, successOf(unswept.claim));
    await stores.jobs.takeExpiredResultBlobs(1000);
    const young = await stores.jobs.removeFinalOlderThan(HOUR_MS, 1000);
    t.deepEqual(young, { rows: 0, blobs: [] });
    await stores.jobs.removeFinalOlderThan(0, 1000);
    t.is(await stores.jobs.find(gone.job.id), undefined);
    t.is(await stores.jobs.find(failed.job.id), undefined);
    t.truthy(await stores.jobs.find(open.job.id));
    t.truthy(await stores.jobs.find(unswept.job.id), 'its blob has still a name');
    const left = await rowsOf(database.kysely, 'outbox', { id: gone.job.id });
    t.deepEqual(left, []);
    const credits = await creditsOf(stores, account);
    t.deepEqual(credits?.sums, { grant: 3, reserve: 4, charge: 2, release: 1, revoke: 0 });
  });

  test('retention › says which blobs are still named', async t => {
    const account = await fundedAccount(stores, 2);
    const open = await submitted(stores, newJob(account));
    const { job, claim } = await running(stores, newJob(account));
    const result = resultOf(claim);
    await stores.queue.succeed(claim, successOf(claim, { result }));
    const strangers = Array.from({ length: 1200 }, (_, index) => `inputs/none-${index}`);
    const named = await stores.jobs.referencedBlobs([
      ...strangers,
      open.input!.blob,
      job.input!.blob,
      result.blob,
      result.blob.toUpperCase(),
    ]);
    t.deepEqual([...named].sort(), [open.input!.blob, result.blob].sort());
    t.deepEqual(await stores.jobs.referencedBlobs([]), new Set());
  });

  test('activity › counts jobs that ended per hour, and reads a past hour once', async t => {
    const account = await fundedAccount(stores, 4);
    const ids: string[] = [];
    for (const isGood of [true, true, false, true]) {
      const { job, claim } = await running(stores, newJob(account));
      await (isGood
        ? stores.queue.succeed(claim, successOf(claim))
        : stores.queue.fail(claim, IMAGE_FAULT));
      ids.push(job.id);
    }
    const startMs = (await jobActivity(database).lastHours()).at(-4)!.startMs;
    const hourOf = async (activity = jobActivity(database)) => {
      const hours = await activity.lastHours();
      t.is(hours.length, 24);
      return hours.find(hour => hour.startMs === startMs)!;
    };
    t.deepEqual(await hourOf(), { startMs, succeeded: 0, failed: 0, waitMs: 0, workMs: 0 });
    const ended = (id: string, finishedAtMs: number) => {
      const times = { created_at: startMs - 3000, started_at: startMs - 1000 };
      return setIn(database.kysely, 'jobs', { id }, { ...times, finished_at: finishedAtMs });
    };
    await ended(ids[0]!, startMs);
    await ended(ids[1]!, startMs + HOUR_MS - 1);
    await ended(ids[2]!, startMs + 1);
    await ended(ids[3]!, startMs + HOUR_MS);
    const activity = jobActivity(database);
    const workMs = 1000 + (HOUR_MS - 1) / 2;
    t.deepEqual(await hourOf(activity), { startMs, succeeded: 2, failed: 1, waitMs: 2000, workMs });
    await ended(ids[1]!, startMs - 1);
    t.is((await hourOf(activity)).succeeded, 2);
    t.is((await hourOf()).succeeded, 1);
  });
});

const REMEMBERED_MS = 600_000;

onBalancedStores(test, 'keys that end', (test, { database, stores, replica }) => {
  const other = replica();

  async function age(jobId: string, ageMs: number): Promise<void> {
    const { readAtMs, finishedAtMs } = await reread(stores, jobId);
    const atMs = readAtMs - ageMs;
    const times = { created_at: atMs, ...(finishedAtMs !== null && { finished_at: atMs }) };
    await setIn(database.kysely, 'jobs', { id: jobId }, times);
  }

  async function succeeded(credits = 2, resultTtlMs = HOUR_MS): Promise<Job> {
    const account = await fundedAccount(stores, credits);
    const { claim, job } = await running(stores, newJob(account));
    assert.ok(await stores.queue.succeed(claim, successOf(claim, { resultTtlMs })));
    return job;
  }

  const remembered = (hash: string | null) => ({ hash: hash ?? '', rememberedMs: REMEMBERED_MS });

  async function keyAfter(by: Stores, job: Job): Promise<string | null> {
    await by.queue.findByKey(job.apiKeyId, remembered(job.idempotencyKeyHash));
    return (await reread(stores, job.id)).idempotencyKeyHash;
  }

  test('are kept while their time runs, and freed once it is over', async t => {
    const job = await succeeded();
    // More than the test takes.
    await age(job.id, REMEMBERED_MS - 60_000);
    t.is(await keyAfter(stores, job), job.idempotencyKeyHash);
    await age(job.id, REMEMBERED_MS);
    t.is(await keyAfter(stores, job), null);
  });

  test('are kept by an open job however old it is', async t => {
    const account = await fundedAccount(stores, 2);
    for (const job of [
      await submitted(stores, newJob(account)),
      (await running(stores, newJob(account))).job,
    ]) {
      await age(job.id, 10 * REMEMBERED_MS);
      t.is(await keyAfter(stores, job), job.idempotencyKeyHash);
    }
  });

  test('are kept for their time by a job that waited longer than that for a node', async t => {
    const job = await succeeded();
    const { readAtMs } = await reread(stores, job.id);
    const created = { created_at: readAtMs - 10 * REMEMBERED_MS };
    await setIn(database.kysely, 'jobs', { id: job.id }, created);
    t.is(await keyAfter(stores, job), job.idempotencyKeyHash);
  });

  test('are kept by a failure for their time, since it would fail again', async t => {
    const { claim, job } = await runningOf(stores);
    t.truthy(await stores.queue.fail(claim, IMAGE_FAULT));
    t.is(await keyAfter(stores, job), job.idempotencyKeyHash);
    await age(job.id, REMEMBERED_MS);
    t.is(await keyAfter(stores, job), null);
  });

  test('are freed if the result expired earlier', async t => {
    const job = await succeeded(2, 0);
    t.is(await keyAfter(stores, job), null);
  });

  test('are freed under their own name alone', async t => {
    const job = await succeeded();
    await age(job.id, REMEMBERED_MS);
    await stores.queue.findByKey(job.apiKeyId, remembered(sha256('another')));
    t.is((await reread(stores, job.id)).idempotencyKeyHash, job.idempotencyKeyHash);
  });

  test('make one job of simultaneous requests on two replicas', async t => {
    for (let round = 0; round < 10; round += 1) {
      const old = await succeeded(3);
      const key = old.idempotencyKeyHash ?? '';
      await age(old.id, REMEMBERED_MS);
      const requests = [stores, other, stores, other].map(async by => {
        const known = await by.queue.findByKey(old.apiKeyId, remembered(key));
        if (known !== undefined) return known.id;
        const next = newJob(old.accountId, { idempotencyKeyHash: key });
        const outcome = await by.queue.submit(next, LIMITS);
        assert.ok('job' in outcome, outcome.kind);
        return outcome.job.id;
      });
      const [made, ...more] = new Set(await Promise.all(requests));
      t.deepEqual(more, []);
      t.not(made, old.id);
      t.deepEqual(await stores.ledger.balances(old.accountId), {
        available: 1,
        reserved: 1,
      });
    }
  });
});

const ALL = ['accepted', 'fetching', 'ready', 'running', 'succeeded', 'failed'] as const;

onStoresInCi(test, 'jobs in pages', (test, { stores, database }) => {
  let account: string;
  let other: string;

  test.before(async () => {
    account = await fundedAccount(stores, 100);
    other = await fundedAccount(stores, 100);
    for (let index = 0; index < 8; index += 1) {
      const accountId = index % 4 === 3 ? other : account;
      await submitted(stores, newJob(accountId));
      const failing = await submitted(stores, newJob(accountId));
      assert.ok(await stores.queue.fail(await claimed(stores, failing), IMAGE_FAULT));
      const { claim } = await running(stores, newJob(accountId));
      assert.ok(await stores.queue.succeed(claim, successOf(claim)));
    }
    // Ends of one millisecond are ordered by id.
    const { kysely } = database;
    await kysely
      .updateTable('jobs')
      .set({ finished_at: database.nowMs })
      .where('finished_at', 'is not', null)
      .execute();
  });

  type Filter = Parameters<typeof stores.jobs.list>[0];

  async function inPages(filter: Omit<Filter, 'limit'>, limit: number) {
    const jobs: Awaited<ReturnType<typeof stores.jobs.list>> = [];
    for (let after: string | undefined; ; after = jobs.at(-1)!.cursor) {
      const page = await stores.jobs.list({ ...filter, limit, after });
      jobs.push(...page);
      assert.ok(jobs.length <= 100, 'the pages have no end');
      if (page.length < limit) return jobs;
    }
  }

  for (const [name, states, mine] of [
    ['open, then the latest to end', ALL, false],
    ['of one account', ALL, true],
    ['of one state', ['failed'], false],
    ['of one account and state', ['succeeded'], true],
    ['open ones of one account', ['ready'], true],
  ] as const) {
    test(`are the whole list: ${name}`, async t => {
      const filter = { states, endedWithinMs: HOUR_MS, accountId: mine ? account : undefined };
      const whole = (await stores.jobs.list({ ...filter, limit: 1000 })).map(({ id }) => id);
      t.is(whole.length, (mine ? 6 : 8) * (states.length === 1 ? 1 : 3));
      for (const limit of [1, 3, 5]) {
        t.deepEqual(
          (await inPages(filter, limit)).map(({ id }) => id),
          whole,
        );
      }
    });
  }

  test('go on behind a job that is not open any more', async t => {
    const filter = { states: ['ready'] as const, endedWithinMs: HOUR_MS, accountId: other };
    const [first, second] = await stores.jobs.list({ ...filter, limit: 10 });
    t.truthy(await stores.queue.fail(await claimed(stores, first!), IMAGE_FAULT));
    const rest = await stores.jobs.list({ ...filter, limit: 10, after: first!.cursor });
    t.deepEqual(
      rest.map(({ id }) => id),
      [second!.id],
    );
  });
});

const URL_TEXT = 'https://a.example/a.png';
const CROPPED = {
  crop: { top: { px: 1 }, right: { percent: 2.5 }, bottom: { px: 0 }, left: { px: 0 } },
  scalePercent: 85,
  position: 'original',
  outputWidth: 3000,
  outputHeight: 2000,
  background: { kind: 'colour', rgba: 0xffffffff },
} as const;
const SIGHT = {
  inputWidth: 2000,
  inputHeight: 1500,
  subject: {
    inputBox: { left: 1, top: 2, width: 3, height: 4 },
    resultBox: { left: 5, top: 6, width: 7, height: 8 },
    share: 0.123456789,
  },
};

const anyLength = fc.oneof(
  fc.record({ px: fc.constantFrom(0, 3, 10_000) }),
  fc.record({ percent: fc.constantFrom(0, 7.5, 500) }),
);
const anyFinishing = fc.record(
  {
    crop: fc.record({ top: anyLength, right: anyLength, bottom: anyLength, left: anyLength }),
    scalePercent: fc.constantFrom(10, 85, 100),
    outputWidth: fc.integer({ min: 1, max: 10_000 }),
    outputHeight: fc.integer({ min: 1, max: 5000 }),
    sizeMaxMegapixels: fc.constantFrom(0.01, 4, 100),
  },
  { requiredKeys: [] },
);

test('a background is found by its name on any replica', t => {
  const id = randomUUID();
  t.is(jobOfBackground(backgroundBlob(id)), id);
  t.is(jobOfBackground(backgroundBlob(id, 12)), id);
  t.is(jobOfBackground(hintsBlob(id)), id);
  t.is(jobOfBackground(`inputs/${id}`), undefined);
  t.is(jobOfBackground('backgrounds/other'), undefined);
});

onStoresInCi(test, 'jobs with finishing', (test, { database, stores }) => {
  async function jobOf(overrides: Partial<NewJob>): Promise<NewJob> {
    const apiKeyId = randomUUID().slice(0, 12);
    return newJob(await fundedAccount(stores, 5), { apiKeyId, ...overrides });
  }

  const openOf = async ({ apiKeyId }: NewJob) =>
    (await stores.queue.listClaimable(1000)).filter(job => job.apiKeyId === apiKeyId);

  test('come back as they were made', async t => {
    const requests: Pick<NewJob, 'outputFormat' | 'channels' | 'finishing'>[] = [
      { outputFormat: 'png', channels: 'rgba', finishing: CROPPED },
      { outputFormat: 'jpeg', channels: 'rgba', finishing: CROPPED },
      { outputFormat: 'zip', channels: 'rgba', finishing: {} },
      { outputFormat: 'webp', channels: 'alpha', finishing: {} },
    ];
    for (const each of requests) {
      const job = await submitted(stores, await jobOf(each));
      const { outputFormat, channels, finishing, background } = job;
      t.deepEqual({ outputFormat, channels, finishing }, each);
      t.is(background, null);
      const [listed] = await openOf(await jobOf({ ...each, apiKeyId: job.apiKeyId }));
      t.deepEqual([listed?.outputFormat, listed?.finishing], [outputFormat, finishing]);
    }
    const plain = await submitted(stores, await jobOf({ outputFormat: 'jxl' }));
    t.deepEqual([plain.channels, plain.finishing, plain.background], ['rgba', null, null]);
  });

  test('are refused without their parts', async t => {
    const wrong: Partial<NewJob>[] = [
      WITH_PICTURE,
      BACKGROUND_URL,
      { ...WITH_PICTURE, background: { url: null, input: null } },
      { ...WITH_PICTURE, background: { url: URL_TEXT, input: storedBackground('x') } },
      { outputFormat: 'jpeg' },
      { channels: 'alpha' },
    ];
    for (const each of wrong) {
      await t.throwsAsync(
        submitted(stores, await jobOf(each)),
        { instanceOf: Error },
        JSON.stringify(each),
      );
    }
  });

  test('keep the node’s facts as long as the result', async t => {
    for (const sight of [SIGHT, { ...SIGHT, subject: null }, null]) {
      const { claim, job } = await running(stores, await jobOf({ finishing: CROPPED }));
      const result = { ...resultOf(claim), format: 'jpeg' as const, sight };
      t.truthy(await stores.queue.succeed(claim, successOf(claim, { result })));
      t.deepEqual((await reread(stores, job.id)).result, result);
    }
  });

  test('name their background until they end, either way', async t => {
    const ends: ((job: Job) => Promise<unknown>)[] = [
      async job => {
        const claim = await claimed(stores, job);
        t.truthy(await stores.queue.admitted(claim));
        t.truthy(await stores.queue.succeed(claim, successOf(claim)));
      },
      async job => stores.queue.fail(await claimed(stores, job), IMAGE_FAULT),
    ];
    for (const end of ends) {
      const id = randomUUID();
      const background = { url: null, input: storedBackground(id) };
      const hintsFile = { ...storedBackground(id), blob: hintsBlob(id) };
      const hinted = { hints: { picture: true as const }, hintsFile };
      const sent = await jobOf({ id, ...WITH_PICTURE, background, ...hinted });
      const job = await submitted(stores, sent);
      t.deepEqual([job.hints, job.hintsFile], [hinted.hints, hintsFile]);
      const { blob } = background.input;
      const names = [
        blob,
        hintsFile.blob,
        backgroundBlob(id, 7),
        backgroundBlob(randomUUID()),
        `inputs/${id}`,
      ];
      const referenced = [...(await stores.jobs.referencedBlobs(names))];
      t.deepEqual(referenced.sort(), [blob, hintsFile.blob, `inputs/${id}`].sort());
      await end(job);
      t.deepEqual(await stores.jobs.referencedBlobs(names), new Set());
      const left = await reread(stores, id);
      t.deepEqual([left.background, left.hints, left.hintsFile], [null, null, null]);
    }
    const byUrl = await submitted(stores, await jobOf({ ...WITH_PICTURE, ...BACKGROUND_URL }));
    await stores.queue.fail(await claimed(stores, byUrl), IMAGE_FAULT);
    const row = await database.kysely
      .selectFrom('jobs')
      .select(['source_url', 'background_url'])
      .where('id', '=', byUrl.id)
      .executeTakeFirst();
    t.deepEqual({ ...row }, { source_url: null, background_url: null });
  });

  test('count as the rule of frames has it, before their image is there and after', async t => {
    const sizes = fc.oneof(
      fc.record({
        width: fc.integer({ min: 1, max: 3000 }),
        height: fc.nat(3000).map(n => n + 1),
      }),
      fc.constant({ width: null, height: null }),
    );
    const property = fc.asyncProperty(anyFinishing, sizes, async (finishing, size) => {
      const queued = async (made: NewJob) => {
        const { byAccount } = await stores.queue.queued();
        return byAccount.get(made.accountId)?.cost;
      };
      const input = { ...storedInput(randomUUID()), ...size };
      const uploaded = await jobOf({ finishing, input });
      const first = await submitted(stores, uploaded);
      const counted = queuedMegapixels({ finishing, input });
      assert.equal(await queued(uploaded), counted);
      const needs = needsOf(input, { outputFormat: 'png', finishing });
      const most = Math.max(needs.pixels ?? 100_000_000, needs.finishing?.frame.most ?? 0);
      assert.equal(counted, Math.max(1, most / 1e6), 'as it is placed');

      const linked = await jobOf({ finishing, input: null, sourceUrl: URL_TEXT });
      const second = await submitted(stores, linked);
      assert.equal(await queued(linked), queuedMegapixels({ finishing, input: null }));
      const claim = await claimed(stores, second);
      assert.ok(await stores.queue.inputStored(claim, input, { finishing }));
      await stores.queue.release(claim);
      assert.equal(await queued(linked), counted);
      for (const job of [first, second]) {
        await stores.queue.fail(await claimed(stores, job), IMAGE_FAULT);
      }
    });
    await t.notThrowsAsync(fc.assert(property, { numRuns: 25 }));
  });
});
