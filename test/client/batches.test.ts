/** Batches of the client, before answers that are scripted. */
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
