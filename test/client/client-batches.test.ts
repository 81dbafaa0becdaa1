import ava from 'ava';
import sinon from 'sinon';
import { MattingClient } from '../../client/src/index.ts';

const test = ava.serial;
const clientWith = (fetch: () => Promise<Response>) =>
  new MattingClient({ baseUrl: 'http://service.example', apiKey: 'mk_a', fetch });

test('a batch is looked at soon, then less often, at last as seldom as the service says', async t => {
  const clock = sinon.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
  t.teardown(() => clock.restore());
  const looks: number[] = [];
  const client = clientWith(async () => {
    looks.push(performance.now());
    const isOver = looks.length === 9;
    const batch = { batch_id: 'b', counts: {}, finished_at: isOver ? '2026-11-21' : null };
    return Response.json(batch, { headers: isOver ? {} : { 'retry-after': '5' } });
  });
  const waited = client.waitForBatch('b');
  await clock.runAllAsync();
  await waited;
  const pauses = looks.slice(1).map((ms, index) => ms - looks[index]!);
  t.true(pauses[0]! < 1000);
  t.deepEqual(
    pauses,
    pauses.toSorted((a, b) => a - b),
  );
  t.is(pauses.at(-1), 5000);
});

test('a page of results that breaks off is read again', async t => {
  const line = (item: number) => `${JSON.stringify({ batch_id: 'b', item, status: 'failed' })}\n`;
  let asked = 0;
  const client = clientWith(async () => {
    asked += 1;
    const isBroken = asked === 2;
    const body = new ReadableStream({
      start(stream) {
        stream.enqueue(new TextEncoder().encode(line(asked === 1 ? 0 : 1)));
        if (isBroken) stream.error(new Error('the connection is lost'));
        else stream.close();
      },
    });
    const link = asked === 1 ? { link: '<http://service.example/>; rel="next"' } : {};
    return new Response(body, { headers: { 'content-type': 'application/jsonl', ...link } });
  });
  const items: number[] = [];
  for await (const { item } of client.batchResults('b')) items.push(item);
  t.deepEqual(items, [0, 1]);
  t.is(asked, 3);
});

test('a page that is not lines of JSON is told as such', async t => {
  const headers = { 'content-type': 'application/jsonl' };
  const client = clientWith(async () => new Response('{"batch_id"\n', { headers }));
  await t.throwsAsync(client.batchResults('b').next(), { message: /not the service's/ });
});

test('the batches of a key are read page by page, and one is submitted again under its key', async t => {
  const asked: { url: string; method: string; key: string | null; body: unknown }[] = [];
  const batch = (id: string) => ({ batch_id: id, counts: {}, finished_at: null });
  const fetch = async (input: string | URL | Request, init: RequestInit = {}) => {
    const { url, method, headers } = new Request(input, init);
    const key = headers.get('idempotency-key');
    asked.push({ url: url.replace('http://service.example', ''), method, key, body: init.body });
    if (method === 'POST') return Response.json(batch('new'), { status: 202 });
    const isFirst = !url.includes('cursor');
    const page = { batches: [batch(isFirst ? 'a' : 'b')], next_cursor: isFirst ? '1-a' : null };
    return Response.json(page);
  };
  const client = new MattingClient({ baseUrl: 'http://service.example', apiKey: 'mk_a', fetch });
  const ids: string[] = [];
  for await (const { batch_id: id } of client.batches({ status: 'finished' })) ids.push(id);
  t.deepEqual(ids, ['a', 'b']);
  const again = await client.submitBatchAgain('a', {}, { idempotencyKey: 'second try' });
  t.is(again.batch_id, 'new');
  t.deepEqual(
    asked.map(({ url, method }) => `${method} ${url}`),
    [
      'GET /v1/matting/batches?status=finished&limit=100',
      'GET /v1/matting/batches?status=finished&limit=100&cursor=1-a',
      'POST /v1/matting/batches/a/again',
    ],
  );
  t.deepEqual([asked[2]?.key, asked[2]?.body], ['second try', '{}']);
});
