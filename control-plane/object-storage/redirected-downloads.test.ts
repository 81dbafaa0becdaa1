import { randomBytes } from 'node:crypto';
import { linesLogger } from '@matting/core/test/support/raw-http.ts';
import { imageBody, type TestApp, useTestApp } from '@matting/core/test/support/test-app.ts';
import { onObjectStores } from '@matting/test-support/object-storage/object-stores.ts';
import ava from 'ava';

import { bucketStorage } from './object-storage.ts';

const FILE = randomBytes(100_000);
const JOBS = '/v1/matting/jobs';

onObjectStores(ava.serial, 'redirected downloads', (test, store) => {
  const { lines, logger } = linesLogger('trace');
  const redirected = () => ({
    storageUrl: store.url(),
    storageKinds: [bucketStorage],
    resultDownloads: 'redirect' as const,
  });
  const app = useTestApp(test, () => ({ ...redirected(), logger }));
  const brief = useTestApp(test, () => ({ ...redirected(), resultTtlMs: 20_000 }));
  let link: string;
  let jobId: string;

  const makeResult = async (of: TestApp) => {
    jobId = (await of.post(JOBS, imageBody())).json().job_id;
    const { token } = await of.succeedJob(jobId, FILE);
    return `/v1/results/${token}`;
  };

  test.before(async () => {
    await app.listen();
    link = await makeResult(app);
  });
  const open = (headers: Record<string, string> = {}, method = 'GET') => {
    const { port } = app.app.server.address() as { port: number };
    return fetch(`http://127.0.0.1:${port}${link}`, { headers, method });
  };

  test('lead to the file, with its type and name', async t => {
    const answer = await open();
    t.is(answer.status, 200);
    t.true(answer.redirected && answer.url.startsWith(store.endpoint));
    t.is(answer.headers.get('content-type'), 'image/png');
    const disposition = `attachment; filename="cutout-${jobId}.png"`;
    t.is(answer.headers.get('content-disposition'), disposition);
    t.deepEqual(Buffer.from(await answer.arrayBuffer()), FILE);
  });

  test('tell its size without it', async t => {
    const answer = await open({}, 'HEAD');
    t.is(answer.status, 200);
    t.true(answer.redirected);
    t.is(answer.headers.get('content-length'), String(FILE.length));
  });

  test('go on where a download broke off, by the tag of whoever began it', async t => {
    const first = await open({ range: 'bytes=0-99' });
    t.is(first.status, 206);
    const etag = first.headers.get('etag') ?? '';
    const rest = await open({ range: 'bytes=100-', 'if-match': etag });
    t.is(rest.status, 206);
    t.deepEqual(Buffer.from(await rest.arrayBuffer()), FILE.subarray(100));
    t.is((await open({ 'if-none-match': etag })).status, 304);
    t.is((await open({ 'if-match': '"another"' })).status, 412);
    t.is((await open({ range: 'bytes=999999-' })).status, 416);
    // The ETag of the answer that returned the result.
    const ours = `"${'ab'.repeat(32)}"`;
    const here = await open({ range: 'bytes=100-', 'if-match': ours });
    t.deepEqual([here.status, here.redirected], [206, false]);
    t.deepEqual(Buffer.from(await here.arrayBuffer()), FILE.subarray(100));
    t.is((await open({ 'if-none-match': ours })).status, 304);
    const ranged = await open({ range: 'bytes=100-', 'if-range': ours });
    t.deepEqual([ranged.status, ranged.redirected], [206, false]);
    await ranged.body?.cancel();
  });

  test('lead nowhere where the file is gone, and say so instead', async t => {
    const gone = await makeResult(app);
    const stored = await app.stores.jobs.find(jobId);
    await app.blobs.remove(stored?.result?.blob ?? 'none');
    for (const method of ['GET', 'HEAD'] as const) {
      const answer = await app.app.inject({ url: gone, method });
      t.is(answer.statusCode, 500);
      if (method === 'GET') t.is(answer.json().code, 'RESULT_LOST');
    }
  });

  test('sign anew each time, for a minute, and nobody keeps the answer', async t => {
    const answer = await app.app.inject(link);
    t.is(answer.statusCode, 302);
    t.is(answer.headers['cache-control'], 'private, no-store');
    t.is(answer.payload, '');
    const url = new URL(String(answer.headers.location));
    t.is(url.searchParams.get('X-Amz-Expires'), '60');
    t.true((await app.app.inject({ url: link, method: 'HEAD' })).statusCode === 302);
  });

  test('are never good for longer than the link', async t => {
    const url = await makeResult(brief);
    const { location } = (await brief.app.inject(url)).headers;
    const seconds = Number(new URL(String(location)).searchParams.get('X-Amz-Expires'));
    t.true(seconds >= 1 && seconds <= 20, `${seconds} s`);
  });

  test('expire and stay unknown as they do without', async t => {
    const url = await makeResult(app);
    const find = app.stores.jobs.findByResultToken.bind(app.stores.jobs);
    const lateBy = (ms: number) => {
      app.stores.jobs.findByResultToken = async token => {
        const job = await find(token);
        return job && { ...job, readAtMs: (job.expiresAtMs ?? 0) + ms };
      };
    };
    lateBy(0);
    t.is((await app.app.inject(url)).json().code, 'RESULT_EXPIRED');
    // A signature lasts at least a second, so in its last second a link is answered directly.
    lateBy(-999);
    const last = await app.app.inject(url);
    t.is(last.statusCode, 200);
    t.deepEqual(last.rawPayload, FILE);
    app.stores.jobs.findByResultToken = find;
    t.is((await app.app.inject('/v1/results/unknown')).json().code, 'NOT_FOUND');
  });

  test('are not in the log, nor is what they lead to', async t => {
    const { location } = (await app.app.inject(link)).headers;
    const logged = JSON.stringify(lines);
    t.regex(logged, /answered/);
    for (const secret of [link.split('/').at(-1) ?? '', 'X-Amz-Signature', String(location)]) {
      t.false(logged.includes(secret));
    }
  });

  test('are no answer of the call that makes a picture', async t => {
    const node = app.onSubmitted(id => app.succeedJob(id, FILE));
    const answer = await app.post('/v1/matting', imageBody(), { accept: 'image/*' });
    await node.stop();
    t.is(answer.statusCode, 200);
    t.deepEqual(answer.rawPayload, FILE);
  });
});
