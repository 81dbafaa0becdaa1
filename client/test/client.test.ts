/** The client against the real control plane: every call, every way to give a picture. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { temporaryFolder } from '../../test/support/temporary-folder.ts';
import { readImage, saveImage } from '../src/files.ts';
import { IMAGE_BYTES_MAX, MattingClient, MattingError } from '../src/index.ts';
import { type ClientHarness, newPicture, openClientHarness } from './client-harness.ts';

let harness: ClientHarness;
const CUT_OUT = randomBytes(300_000);

before(async () => {
  harness = await openClientHarness();
});
afterEach(() => harness.proxy.clear());
after(() => harness.close());

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

test('bytes in, bytes out', async () => {
  const { client, app } = harness;
  const before = (await client.account()).credits.available;
  const image = newPicture();
  const cutOut = await withNode(() => client.cutOut({ image, output_format: 'webp' }));
  assert.deepEqual(Buffer.from(cutOut.bytes), CUT_OUT);
  assert.equal(cutOut.contentType, 'image/webp');
  assert.ok(cutOut.url.startsWith(`${harness.proxy.url}/v1/results/`));
  assert.equal((await app.stores.jobs.find(cutOut.jobId))?.state, 'succeeded');
  const { available } = (await client.account()).credits;
  assert.equal(available, before - 1);
  const { usage, total } = await client.usage({ group: 'format' });
  assert.ok(usage.some(({ format, images }) => format === 'webp' && images === 1));
  assert.ok(total.credits >= 1);
  const wrong = client.usage({ from: '2026-13-01' });
  await assert.rejects(wrong, isError('INVALID_PARAMETER', { status: 400 }));
});

test('whatever holds the bytes, the same picture is the same request', async () => {
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
  assert.equal(new Set(ids).size, 1);
});

test('a picture by its address is submitted, waited for and downloaded', async () => {
  const { client } = harness;
  const image = new URL('https://example.com/photo.jpg');
  const submitted = await client.submit({ image });
  assert.equal(submitted.status, 'queued');
  assert.deepEqual(JSON.parse(harness.proxy.sent('POST')[0]!.body.toString()), {
    image_url: image.href,
  });
  const waiting = client.wait(submitted);
  await harness.app.succeedJob(submitted.job_id, CUT_OUT);
  const job = await waiting;
  assert.deepEqual([job.status, job.job_id], ['succeeded', submitted.job_id]);
  assert.deepEqual(await client.job(job.job_id), job);
  assert.deepEqual(Buffer.from(await client.download(job)), CUT_OUT);
  assert.deepEqual(Buffer.from(await client.download(job.result.url)), CUT_OUT);
});

test('a job that the service hands over is followed to its end', async () => {
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
    assert.deepEqual(Buffer.from((await running).bytes), CUT_OUT);
    assert.equal(slow.proxy.sent('POST').length, 1);
  } finally {
    await slow.close();
  }
});

test('a refusal has its code, status, job, request and fields', async () => {
  const { client } = harness;
  const wrong = client.cutOut({ image: newPicture(), output_format: 'bmp' as never });
  await assert.rejects(wrong, (error: MattingError) => {
    assert.deepEqual([error.code, error.status], ['UNSUPPORTED_OUTPUT_FORMAT', 400]);
    assert.equal(error.retryable, false);
    assert.match(error.requestId ?? '', /^req_/);
    return true;
  });
  const callback = client.submit({ image: newPicture(), callback_url: 'https://example.com/' });
  await assert.rejects(callback, (error: MattingError) => {
    assert.equal(error.code, 'INVALID_CALLBACK');
    assert.notDeepEqual(error.fieldErrors, []);
    return true;
  });
  const stranger = harness.clientWith({ apiKey: 'mk_nobody' });
  await assert.rejects(stranger.account(), isError('INVALID_API_KEY', { status: 401 }));
});

test('a job that failed for good says so wherever it is met', async () => {
  const { client, app } = harness;
  const failure = { code: 'PROCESSING_FAILED', detail: 'no', retryable: false } as const;
  const node = app.onSubmitted(jobId => app.failJob(jobId, failure));
  const request = { image: newPicture() };
  const options = { idempotencyKey: 'a picture that cannot be read' };
  await assert.rejects(client.cutOut(request, options), isError('PROCESSING_FAILED'));
  await node.stop();
  const job = await client.submit(request, options);
  assert.equal(job.status, 'failed');
  await assert.rejects(
    client.wait(job),
    isError('PROCESSING_FAILED', { jobId: job.job_id, retryable: false }),
  );
  await assert.rejects(client.wait('nothing'), isError('JOB_NOT_FOUND', { status: 404 }));
});

test('another picture under the same key is a conflict, never a second job', async () => {
  const { client } = harness;
  const options = { idempotencyKey: 'taken' };
  await withNode(() => client.cutOut({ image: newPicture() }, options));
  const other = client.cutOut({ image: newPicture() }, options);
  await assert.rejects(other, isError('IDEMPOTENCY_CONFLICT', { status: 409 }));
});

test('what cannot be sent is refused before it is', async () => {
  const { client } = harness;
  const huge = new Blob([new Uint8Array(IMAGE_BYTES_MAX + 1)]);
  await assert.rejects(client.cutOut({ image: huge }), isError('IMAGE_TOO_LARGE'));
  await assert.rejects(client.cutOut({ image: huge.stream() }), isError('IMAGE_TOO_LARGE'));
  const named = (idempotencyKey: string) =>
    client.cutOut({ image: newPicture() }, { idempotencyKey });
  await assert.rejects(named('\n'), TypeError);
  await assert.rejects(named(''), TypeError);
  await assert.rejects(named('k'.repeat(129)), TypeError);
  const make = (baseUrl: string, apiKey = 'mk_a') => new MattingClient({ baseUrl, apiKey });
  assert.throws(() => make('ftp://example.com'), TypeError);
  assert.throws(() => make('http://user:word@example.com'), TypeError);
  assert.throws(() => make('nowhere'), TypeError);
  assert.throws(() => make('http://example.com', 'two lines\n'), TypeError);
  assert.equal(harness.proxy.seen.length, 0);
});

test('a file is read, and written whole or not at all', async context => {
  const directory = await temporaryFolder(context);
  const bytes = newPicture();
  const source = path.join(directory, 'photo.png');
  await writeFile(source, bytes);
  assert.deepEqual(Buffer.from(await readImage(source)), Buffer.from(bytes));
  const target = path.join(directory, 'cutout.png');
  assert.equal(await saveImage(target, [bytes.subarray(0, 5), bytes.subarray(5)]), bytes.length);
  assert.deepEqual(await readFile(target), Buffer.from(bytes));
  const broken = async function* () {
    yield bytes;
    throw new Error('broken off');
  };
  const other = path.join(directory, 'other.png');
  await assert.rejects(saveImage(other, broken()), /broken off/);
  assert.deepEqual((await readdir(directory)).sort(), ['cutout.png', 'photo.png']);
});
