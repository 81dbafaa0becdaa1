/** Jobs with finishing: what their rows keep, where they stand, what becomes of their pictures. */
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import ava from 'ava';
import { fc } from '../../../../test/support/property-tests.ts';
import { megapixelsOf, needsOf } from '../../../src/domain/dispatch/job-needs.ts';
import { backgroundBlob, type Job, jobOfBackground } from '../../../src/domain/job.ts';
import { queuedMegapixels } from '../../../src/domain/queue-share.ts';
import type { Database } from '../../../src/store/database/connect.ts';
import type { NewJob } from '../../../src/store/jobs/job-submission.ts';
import {
  BACKGROUND_URL,
  claimed,
  fundedAccount,
  HOUR_MS,
  IMAGE_FAULT,
  newJob,
  onStores,
  reread,
  resultOf,
  running,
  storedBackground,
  storedInput,
  submitted,
  WITH_PICTURE,
} from '../fixtures.ts';

const test = ava.serial;

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

test('a background is found by its name, whoever stored it', t => {
  const id = randomUUID();
  t.is(jobOfBackground(backgroundBlob(id)), id);
  t.is(jobOfBackground(backgroundBlob(id, 12)), id);
  t.is(jobOfBackground(`inputs/${id}`), undefined);
  t.is(jobOfBackground('backgrounds/other'), undefined);
});

onStores(test, 'jobs with finishing', (test, { database, stores }) => {
  /** Of an account of its own, with credits for a few. */
  async function jobOf(overrides: Partial<NewJob>): Promise<NewJob> {
    const apiKeyId = randomUUID().slice(0, 12);
    return newJob(await fundedAccount(stores, 5), { apiKeyId, ...overrides });
  }

  const openOf = async ({ apiKeyId }: NewJob) =>
    (await stores.jobs.listClaimable(1000)).filter(job => job.apiKeyId === apiKeyId);

  test('come back as they were made', async t => {
    const asked: Pick<NewJob, 'outputFormat' | 'channels' | 'finishing'>[] = [
      { outputFormat: 'png', channels: 'rgba', finishing: CROPPED },
      { outputFormat: 'jpeg', channels: 'rgba', finishing: CROPPED },
      { outputFormat: 'zip', channels: 'rgba', finishing: {} },
      { outputFormat: 'webp', channels: 'alpha', finishing: {} },
    ];
    for (const each of asked) {
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

  test('are not made without what they need', async t => {
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

  test('tell what the node saw, for as long as there is a result', async t => {
    for (const sight of [SIGHT, { ...SIGHT, subject: null }, null]) {
      const { claim, job } = await running(stores, await jobOf({ finishing: CROPPED }));
      const result = { ...resultOf(claim), format: 'jpeg' as const, sight };
      t.truthy(await stores.jobs.succeed(claim, result, HOUR_MS, {}));
      t.deepEqual((await reread(stores, job.id)).result, result);
    }
  });

  test('of two URLs are downloaded one after the other, each among those of its host', async t => {
    const made = await jobOf({ sourceUrl: URL_TEXT, ...WITH_PICTURE, ...BACKGROUND_URL });
    const { id, sourceHost } = await submitted(stores, made);
    const first = await claimed(stores, await reread(stores, id));
    const input = storedInput(id);
    const { url: backgroundUrl } = BACKGROUND_URL.background;
    for (const again of [false, true]) {
      t.truthy(await stores.jobs.inputStored(first, input, { backgroundUrl }), `${again}`);
    }
    const between = await reread(stores, id);
    t.deepEqual([between.state, between.input], ['fetching', input]);
    t.not(between.sourceHost, sourceHost);
    t.truthy(await stores.jobs.release(first));
    const [listed] = await openOf(made);
    t.deepEqual([listed?.state, listed?.sourceHost], ['fetching', between.sourceHost]);
    const second = await claimed(stores, between);
    t.is(await stores.jobs.admitted(second), false, 'not before its background');
    t.false(await stores.jobs.backgroundStored(first, storedBackground(id)));
    for (const again of [false, true]) {
      t.truthy(await stores.jobs.backgroundStored(second, storedBackground(id)), `${again}`);
    }
    const ready = await reread(stores, id);
    t.deepEqual(
      [ready.state, ready.input, ready.background?.input],
      ['ready', input, storedBackground(id)],
    );
  });

  test('with their image and the URL of a background wait for that download alone', async t => {
    const made = await jobOf({ ...WITH_PICTURE, ...BACKGROUND_URL });
    const job = await submitted(stores, made);
    t.deepEqual([job.state, job.sourceUrl, job.input], ['accepted', null, made.input]);
    assert.ok(job.sourceHost !== null);
    t.deepEqual(job.background, BACKGROUND_URL.background);
    const claim = await claimed(stores, job);
    t.truthy(await stores.jobs.backgroundStored(claim, storedBackground(job.id)));
    t.is((await reread(stores, job.id)).state, 'ready');
  });

  test('name their background until they end, either way', async t => {
    const ends: ((job: Job) => Promise<unknown>)[] = [
      async job => {
        const claim = await claimed(stores, job);
        t.truthy(await stores.jobs.admitted(claim));
        t.truthy(await stores.jobs.succeed(claim, resultOf(claim), HOUR_MS, {}));
      },
      async job => stores.jobs.fail(await claimed(stores, job), IMAGE_FAULT),
    ];
    for (const end of ends) {
      const id = randomUUID();
      const background = { url: null, input: storedBackground(id) };
      const job = await submitted(stores, await jobOf({ id, ...WITH_PICTURE, background }));
      const { blob } = background.input;
      const names = [blob, backgroundBlob(id, 7), backgroundBlob(randomUUID()), `inputs/${id}`];
      const referenced = [...(await stores.jobs.referencedBlobs(names))];
      t.deepEqual(referenced.sort(), [blob, `inputs/${id}`].sort());
      await end(job);
      t.deepEqual(await stores.jobs.referencedBlobs(names), new Set());
      const { background: left } = await reread(stores, id);
      t.is(left, null);
    }
    const byUrl = await submitted(stores, await jobOf({ ...WITH_PICTURE, ...BACKGROUND_URL }));
    await stores.jobs.fail(await claimed(stores, byUrl), IMAGE_FAULT);
    const row = await database.kysely
      .selectFrom('jobs')
      .select(['source_url', 'background_url'])
      .where('id', '=', byUrl.id)
      .executeTakeFirst();
    t.deepEqual({ ...row }, { source_url: null, background_url: null });
  });

  test('stand among the others of their lane', async t => {
    const plain = await jobOf({});
    const { accountId, apiKeyId } = plain;
    const ids: string[] = [];
    for (const finishing of [undefined, CROPPED, undefined, CROPPED]) {
      const asked = finishing === undefined ? {} : { finishing };
      ids.push((await submitted(stores, newJob(accountId, { apiKeyId, ...asked }))).id);
      await passesAMillisecond(database);
    }
    const lanes = (await stores.jobs.listLanes()).filter(lane => lane.apiKeyId === apiKeyId);
    t.is(lanes.length, 1);
    t.deepEqual(
      (await openOf(plain)).map(({ id }) => id),
      ids,
    );
    const pages: string[] = [];
    let cursor: string | undefined;
    do {
      const states = ['ready' as const];
      const filter = { states, accountId, endedWithinMs: HOUR_MS, limit: 1, after: cursor };
      const page = await stores.jobs.list(filter);
      pages.push(...page.map(({ id }) => id));
      cursor = page[0]?.cursor;
    } while (cursor !== undefined);
    t.deepEqual(pages, ids);
  });

  test('count in the queue by the larger of input and frame', async t => {
    const made = await jobOf({ finishing: CROPPED });
    await submitted(stores, made);
    const large = { ...CROPPED, outputWidth: 100, outputHeight: 100 };
    const { accountId, apiKeyId } = made;
    await submitted(stores, newJob(accountId, { apiKeyId, finishing: large }));
    const { byAccount } = await stores.jobs.queued();
    t.is(byAccount.get(accountId)?.megapixels, 6 + 3);
    t.is(byAccount.get(accountId)?.jobs, 2);
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
        const { byAccount } = await stores.jobs.queued();
        return byAccount.get(made.accountId)?.megapixels;
      };
      const input = { ...storedInput(randomUUID()), ...size };
      const uploaded = await jobOf({ finishing, input });
      const first = await submitted(stores, uploaded);
      const counted = queuedMegapixels({ finishing, input });
      assert.equal(await queued(uploaded), counted);
      const needs = needsOf(input, { outputFormat: 'png', finishing });
      assert.equal(counted, Math.max(1, megapixelsOf(needs)), 'as it is placed');

      const linked = await jobOf({ finishing, input: null, sourceUrl: URL_TEXT });
      const second = await submitted(stores, linked);
      assert.equal(await queued(linked), queuedMegapixels({ finishing, input: null }));
      const claim = await claimed(stores, second);
      assert.ok(await stores.jobs.inputStored(claim, input, { finishing }));
      await stores.jobs.release(claim);
      assert.equal(await queued(linked), counted);
      for (const job of [first, { ...second, fence: claim.fence }]) {
        await stores.jobs.fail(await claimed(stores, job), IMAGE_FAULT);
      }
    });
    await t.notThrowsAsync(fc.assert(property, { numRuns: 25 }));
  });

  test('of an image that is not there count what its fields make of any', async t => {
    const far = { px: 10_000 };
    for (const [finishing, megapixels] of [
      [{ background: CROPPED.background }, 4],
      [{ outputHeight: 10_000 }, 50],
      [{ crop: { top: far, right: far, bottom: far, left: far } }, 50],
      [{ outputWidth: 3000, outputHeight: 2000 }, 6],
      [{ outputWidth: 300 }, 4],
    ] as const) {
      const made = await jobOf({ finishing, input: null, sourceUrl: URL_TEXT });
      await submitted(stores, made);
      const { byAccount } = await stores.jobs.queued();
      t.is(byAccount.get(made.accountId)?.megapixels, megapixels);
    }
  });
});

/** By the database's clock, which the queue is ordered by. */
async function passesAMillisecond(database: Database): Promise<void> {
  const read = async () =>
    (await database.kysely.selectNoFrom(() => database.nowMs.as('now')).executeTakeFirstOrThrow())
      .now;
  const from = await read();
  while ((await read()) === from) await new Promise(resolve => setImmediate(resolve));
}
