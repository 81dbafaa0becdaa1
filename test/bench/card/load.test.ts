import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type RequestListener } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { type LoadOptions, underLoad } from '../../../bench/card/load.ts';

async function withServer(
  listener: RequestListener,
  use: (load: LoadOptions, origin: string) => Promise<void>,
) {
  const server = createServer(listener).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const photo = { name: '1 MP png', width: 1, height: 1, file: Buffer.from('a photo') };
  const target = { kind: 'rest', origin, apiKey: 'key' } as const;
  try {
    await use({ target, photo, format: 'webp', callers: 3, threads: 2, keepAnswers: true }, origin);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test('callers count what was answered at once, later, and not at all, by its bytes', async () => {
  let asked = 0;
  let origin = '';
  const photos = new Set<string>();
  await withServer(
    async (request, response) => {
      const body = Buffer.concat(await request.toArray()).toString();
      if (request.url === '/v1/jobs/1') {
        const result = { url: `${origin}/results/1?signature=s` };
        return void response.end(JSON.stringify({ status: 'succeeded', result }));
      }
      if (request.url === '/results/1?signature=s') return void response.end('one cut-out');
      photos.add(`${request.url} ${request.headers['content-type']} ${body}`);
      asked += 1;
      if (asked === 1) response.writeHead(202, { location: '/v1/jobs/1' }).end();
      else if (asked === 2) response.writeHead(503).end('{"code": "NODE_OVERLOADED", "id": 7}');
      else response.end(asked === 3 ? 'another cut-out' : 'one cut-out');
    },
    async (options, at) => {
      origin = at;
      const figures = await underLoad(options, async load => {
        load.begin();
        while (asked < 20) await delay(5);
        return await load.end();
      });
      assert.deepEqual([...photos], ['/v1/matting?output_format=webp image/png a photo']);
      assert.deepEqual([figures.answered, figures.answeredLater], [asked - 1, 1]);
      assert.deepEqual(figures.failures, { '503 NODE_OVERLOADED': 1 });
      const counts = figures.answers.map(({ count, file }) => `${count} ${Buffer.from(file)}`);
      assert.deepEqual(counts.sort(), ['1 another cut-out', `${asked - 2} one cut-out`]);
    },
  );
});

test('callers are gone when what is measured fails, or one of their threads does', async () => {
  let asked = 0;
  await withServer(
    (_, response) => {
      asked += 1;
      response.end();
    },
    async options => {
      const failing = underLoad(options, async () => {
        while (asked < 5) await delay(5);
        throw new Error('no engine lives');
      });
      await assert.rejects(failing, /no engine lives/);
      // What they sent before they ended still comes in.
      await delay(100);
      const before = asked;
      await delay(100);
      assert.equal(asked, before);
      const broken = { ...options, target: { ...options.target, kind: 'rest', origin: 'nowhere' } };
      const withoutOrigin = underLoad(broken as LoadOptions, async load => {
        // The thread fails meanwhile.
        await delay(200);
        return await load.end();
      });
      await assert.rejects(withoutOrigin, /Invalid URL/);
    },
  );
});
