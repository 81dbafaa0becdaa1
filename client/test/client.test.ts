/** The client against the real control plane: every call, every way to give a picture. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { rejectsWith } from '../../test/support/throws.ts';
import { readImage, saveImage } from '../src/files.ts';
import { IMAGE_BYTES_MAX, MattingClient, MattingError } from '../src/index.ts';
import { type ClientHarness, newPicture, openClientHarness } from './client-harness.ts';

const test = ava.serial;

let harness: ClientHarness;
const CUT_OUT = randomBytes(300_000);

test.before(async () => {
  harness = await openClientHarness();
});
test.afterEach.always(() => harness.proxy.clear());
test.after.always(() => harness.close());

/** Ends every job that is submitted while `act` runs. */
async function withNode<T>(act: () => Promise<T>): Promise<T> {
  const node = harness.serve(CUT_OUT);
  try {
    return await act();
  } finally {
    await node.stop();
  }
}

function isError(code: string, more: Partial<MattingError> = {}) {
  return (error: unknown) => {
    assert.ok(error instanceof MattingError, String(error));
    assert.partialDeepStrictEqual({ ...error }, { code, ...more });
    return true;
  };
}

test('bytes in, bytes out', async t => {
  const { client, app } = harness;
  const before = (await client.account()).credits.available;
  const image = newPicture();
  const cutOut = await withNode(() => client.cutOut({ image, output_format: 'webp' }));
  t.true(CUT_OUT.equals(cutOut.bytes));
  t.is(cutOut.contentType, 'image/webp');
  t.true(cutOut.url.startsWith(`${harness.proxy.url}/v1/results/`));
  t.is((await app.stores.jobs.find(cutOut.jobId))?.state, 'succeeded');
  const { available } = (await client.account()).credits;
  t.is(available, before - 1);
  const { usage, total } = await client.usage({ group: 'format' });
  t.true(usage.some(({ format, images }) => format === 'webp' && images === 1));
  t.true(total.credits >= 1);
  const wrong = client.usage({ from: '2026-13-01' });
  await rejectsWith(t, wrong, isError('INVALID_PARAMETER', { status: 400 }));
});

test('whatever holds the bytes, the same picture is the same request', async t => {
  const { client } = harness;
  const bytes = newPicture();
  const pieces = async function* () {
    yield bytes.subarray(0, 7);
    yield bytes.subarray(7);
  };
  const forms = [
    bytes,
    bytes.slice().buffer as ArrayBuffer,
    new Blob([bytes.slice()]),
    new Blob([bytes.slice()]).stream(),
    pieces(),
  ];
  const ids = await withNode(async () => {
    const found: string[] = [];
    for (const image of forms) {
      found.push((await client.run({ image }, { idempotencyKey: 'one picture' })).job_id);
    }
    return found;
  });
  t.is(new Set(ids).size, 1);
});

test('a picture by its address is submitted, waited for and downloaded', async t => {
  const { client } = harness;
  const image = new URL('https://example.com/photo.jpg');
  const submitted = await client.submit({ image });
  t.is(submitted.status, 'queued');
  t.deepEqual(JSON.parse(harness.proxy.sent('POST')[0]!.body.toString()), {
    image_url: image.href,
  });
  const waiting = client.wait(submitted);
  await harness.app.succeedJob(submitted.job_id, CUT_OUT);
  const job = await waiting;
  t.deepEqual([job.status, job.job_id], ['succeeded', submitted.job_id]);
  t.deepEqual(await client.job(job.job_id), job);
  t.true(CUT_OUT.equals(await client.download(job)));
  t.true(CUT_OUT.equals(await client.download(job.result.url)));
});

test('a job that the service hands over is followed to its end', async t => {
  const slow = await openClientHarness({ syncWaitMs: 50 });
  try {
    const running = slow.client.cutOut({ image: newPicture() });
    slow.proxy.choose = ({ method, url }) => {
      // The answer that hands it over has gone out: now it may end.
      if (method === 'GET' && url.startsWith('/v1/matting/jobs/')) ends();
      return undefined;
    };
    let ends = () => {
      ends = () => undefined;
      const jobId = slow.proxy.seen.at(-1)!.url.split('/').at(-1)!;
      slow.app.succeedJob(jobId, CUT_OUT).catch(assert.fail);
    };
    t.true(CUT_OUT.equals((await running).bytes));
    t.is(slow.proxy.sent('POST').length, 1);
  } finally {
    await slow.close();
  }
});

test('a refusal has its code, status, job, request and fields', async t => {
  const { client } = harness;
  const wrong = client.cutOut({ image: newPicture(), output_format: 'bmp' as never });
  await rejectsWith(t, wrong, (error: MattingError) => {
    t.deepEqual([error.code, error.status], ['UNSUPPORTED_OUTPUT_FORMAT', 400]);
    t.false(error.retryable);
    t.regex(error.requestId ?? '', /^req_/);
    return true;
  });
  const callback = client.submit({ image: newPicture(), callback_url: 'https://example.com/' });
  await rejectsWith(t, callback, (error: MattingError) => {
    t.is(error.code, 'INVALID_CALLBACK');
    t.notDeepEqual(error.fieldErrors, []);
    return true;
  });
  const stranger = harness.clientWith({ apiKey: 'mk_nobody' });
  await rejectsWith(t, stranger.account(), isError('INVALID_API_KEY', { status: 401 }));
});

test('a job that failed for good says so wherever it is met', async t => {
  const { client, app } = harness;
  const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable: false } as const;
  const node = app.onSubmitted(jobId => app.failJob(jobId, failure));
  const request = { image: newPicture() };
  const options = { idempotencyKey: 'a picture that cannot be read' };
  await rejectsWith(t, client.cutOut(request, options), isError('PROCESSING_FAILED'));
  await node.stop();
  const job = await client.submit(request, options);
  t.is(job.status, 'failed');
  await rejectsWith(
    t,
    client.wait(job),
    isError('PROCESSING_FAILED', { jobId: job.job_id, retryable: false }),
  );
  await rejectsWith(t, client.wait('nothing'), isError('JOB_NOT_FOUND', { status: 404 }));
});

test('another picture under the same key is a conflict, never a second job', async t => {
  const { client } = harness;
  const options = { idempotencyKey: 'taken' };
  await withNode(() => client.cutOut({ image: newPicture() }, options));
  const other = client.cutOut({ image: newPicture() }, options);
  await rejectsWith(t, other, isError('IDEMPOTENCY_CONFLICT', { status: 409 }));
});

test('what cannot be sent is refused before it is', async t => {
  const { client } = harness;
  const huge = new Blob([new Uint8Array(IMAGE_BYTES_MAX + 1)]);
  await rejectsWith(t, client.cutOut({ image: huge }), isError('IMAGE_TOO_LARGE'));
  await rejectsWith(t, client.cutOut({ image: huge.stream() }), isError('IMAGE_TOO_LARGE'));
  const named = (idempotencyKey: string) =>
    client.cutOut({ image: newPicture() }, { idempotencyKey });
  await t.throwsAsync(named('\n'), { instanceOf: TypeError });
  await t.throwsAsync(named(''), { instanceOf: TypeError });
  await t.throwsAsync(named('k'.repeat(129)), { instanceOf: TypeError });
  const make = (baseUrl: string, apiKey = 'mk_a') => new MattingClient({ baseUrl, apiKey });
  t.throws(() => make('ftp://example.com'), { instanceOf: TypeError });
  t.throws(() => make('http://user:word@example.com'), { instanceOf: TypeError });
  t.throws(() => make('nowhere'), { instanceOf: TypeError });
  t.throws(() => make('http://example.com', 'two lines\n'), { instanceOf: TypeError });
  t.is(harness.proxy.seen.length, 0);
});

test('a file is read, and written whole or not at all', async t => {
  const directory = await temporaryFolder(t);
  const bytes = newPicture();
  const source = path.join(directory, 'photo.png');
  await writeFile(source, bytes);
  t.deepEqual(Buffer.from(await readImage(source)), Buffer.from(bytes));
  const target = path.join(directory, 'cutout.png');
  t.is(await saveImage(target, [bytes.subarray(0, 5), bytes.subarray(5)]), bytes.length);
  t.deepEqual(await readFile(target), Buffer.from(bytes));
  const broken = async function* () {
    yield bytes;
    throw new Error('broken off');
  };
  const other = path.join(directory, 'other.png');
  await t.throwsAsync(saveImage(other, broken()), { message: /broken off/ });
  t.deepEqual((await readdir(directory)).sort(), ['cutout.png', 'photo.png']);
});
