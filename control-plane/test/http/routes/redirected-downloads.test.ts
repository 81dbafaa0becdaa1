/** Result links that lead to the storage, on a real server and by a real client of HTTP. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { before, describe, it } from 'node:test';
import {
  missingStore,
  OBJECT_STORES,
  useObjectStore,
} from '../../../../test/support/object-storage/object-store.ts';
import { linesLogger } from '../../support/raw-http.ts';
import { imageBody, type TestApp, useTestApp } from '../../support/test-app.ts';

const FILE = randomBytes(100_000);
const JOBS = '/v1/matting/jobs';

for (const kind of OBJECT_STORES) {
  describe(`redirected downloads: ${kind}`, { skip: missingStore(kind) }, () => {
    const store = useObjectStore(kind);
    const { lines, logger } = linesLogger('trace');
    const redirected = () => ({ storageUrl: store.url(), resultDownloads: 'redirect' }) as const;
    const app = useTestApp(() => ({ ...redirected(), logger }));
    const brief = useTestApp(() => ({ ...redirected(), resultTtlMs: 20_000 }));
    let link: string;
    let jobId: string;

    const makeResult = async (of: TestApp) => {
      jobId = (await of.post(JOBS, imageBody())).json().job_id;
      const { token } = await of.succeedJob(jobId, FILE);
      return `/v1/results/${token}`;
    };

    before(async () => {
      await app.listen();
      link = await makeResult(app);
    });
    const open = (headers: Record<string, string> = {}, method = 'GET') => {
      const { port } = app.app.server.address() as { port: number };
      return fetch(`http://127.0.0.1:${port}${link}`, { headers, method });
    };

    it('lead to the file, with its type and name', async () => {
      const answer = await open();
      assert.equal(answer.status, 200);
      assert.ok(answer.redirected && answer.url.startsWith(store.endpoint));
      assert.equal(answer.headers.get('content-type'), 'image/png');
      const disposition = `attachment; filename="cutout-${jobId}.png"`;
      assert.equal(answer.headers.get('content-disposition'), disposition);
      assert.deepEqual(Buffer.from(await answer.arrayBuffer()), FILE);
    });

    it('tell its size without it', async () => {
      const answer = await open({}, 'HEAD');
      assert.equal(answer.status, 200);
      assert.ok(answer.redirected);
      assert.equal(answer.headers.get('content-length'), String(FILE.length));
    });

    it('go on where a download broke off, by the tag of whoever began it', async () => {
      const first = await open({ range: 'bytes=0-99' });
      assert.equal(first.status, 206);
      const etag = first.headers.get('etag') ?? '';
      const rest = await open({ range: 'bytes=100-', 'if-match': etag });
      assert.equal(rest.status, 206);
      assert.deepEqual(Buffer.from(await rest.arrayBuffer()), FILE.subarray(100));
      assert.equal((await open({ 'if-none-match': etag })).status, 304);
      assert.equal((await open({ 'if-match': '"another"' })).status, 412);
      assert.equal((await open({ range: 'bytes=999999-' })).status, 416);
      // As the answer of the call that made it has it.
      const ours = `"${'ab'.repeat(32)}"`;
      const here = await open({ range: 'bytes=100-', 'if-match': ours });
      assert.deepEqual([here.status, here.redirected], [206, false]);
      assert.deepEqual(Buffer.from(await here.arrayBuffer()), FILE.subarray(100));
      assert.equal((await open({ 'if-none-match': ours })).status, 304);
      const ranged = await open({ range: 'bytes=100-', 'if-range': ours });
      assert.deepEqual([ranged.status, ranged.redirected], [206, false]);
      await ranged.body?.cancel();
    });

    it('lead nowhere where the file is gone, and say so instead', async () => {
      const gone = await makeResult(app);
      const stored = await app.stores.jobs.find(jobId);
      await app.blobs.remove(stored?.result?.blob ?? 'none');
      for (const method of ['GET', 'HEAD'] as const) {
        const answer = await app.app.inject({ url: gone, method });
        assert.equal(answer.statusCode, 500);
        if (method === 'GET') assert.equal(answer.json().code, 'RESULT_LOST');
      }
    });

    it('sign anew each time, for a minute, and nobody keeps the answer', async () => {
      const answer = await app.app.inject(link);
      assert.equal(answer.statusCode, 302);
      assert.equal(answer.headers['cache-control'], 'private, no-store');
      assert.equal(answer.payload, '');
      const url = new URL(String(answer.headers.location));
      assert.equal(url.searchParams.get('X-Amz-Expires'), '60');
      assert.ok((await app.app.inject({ url: link, method: 'HEAD' })).statusCode === 302);
    });

    it('are never good for longer than the link', async () => {
      const url = await makeResult(brief);
      const { location } = (await brief.app.inject(url)).headers;
      const seconds = Number(new URL(String(location)).searchParams.get('X-Amz-Expires'));
      assert.ok(seconds >= 1 && seconds <= 20, `${seconds} s`);
    });

    it('expire and stay unknown as they do without', async () => {
      const url = await makeResult(app);
      const find = app.stores.jobs.findByResultToken.bind(app.stores.jobs);
      const lateBy = (ms: number) => {
        app.stores.jobs.findByResultToken = async token => {
          const job = await find(token);
          return job && { ...job, readAtMs: (job.expiresAtMs ?? 0) + ms };
        };
      };
      lateBy(0);
      assert.equal((await app.app.inject(url)).json().code, 'RESULT_EXPIRED');
      // The last moment of a link: a signature could not be good for less than a second.
      lateBy(-999);
      const last = await app.app.inject(url);
      assert.equal(last.statusCode, 200);
      assert.deepEqual(last.rawPayload, FILE);
      app.stores.jobs.findByResultToken = find;
      assert.equal((await app.app.inject('/v1/results/unknown')).json().code, 'NOT_FOUND');
    });

    it('are not in the log, nor is what they lead to', async () => {
      const { location } = (await app.app.inject(link)).headers;
      const logged = JSON.stringify(lines);
      assert.match(logged, /answered/);
      for (const secret of [link.split('/').at(-1) ?? '', 'X-Amz-Signature', String(location)]) {
        assert.ok(!logged.includes(secret));
      }
    });

    it('are no answer of the call that makes a picture', async () => {
      const node = app.onSubmitted(id => app.succeedJob(id, FILE));
      const answer = await app.post('/v1/matting', imageBody(), { accept: 'image/*' });
      await node.stop();
      assert.equal(answer.statusCode, 200);
      assert.deepEqual(answer.rawPayload, FILE);
    });
  });
}
