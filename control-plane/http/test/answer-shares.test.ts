import { type AddressInfo, connect } from 'node:net';
import { until } from '@matting/test-support/waiting.ts';
import test, { type ExecutionContext } from 'ava';
import fastify from 'fastify';
import { AnswerShares, HEAVY, LIGHT } from '../answer-shares.ts';

/** `account` names the caller. /heavy and /light answer when a test ends them. */
async function openApp(t: ExecutionContext) {
  const app = fastify();
  t.teardown(() => app.close());
  const shares = new AnswerShares(({ headers }) => headers.account as string | undefined);
  shares.serve(app);
  const made: { readonly who: string; readonly end: () => void }[] = [];
  const add = (path: string, weight: number, waits: boolean) =>
    app.get(path, { config: { weight } }, async ({ headers, ip }) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      made.push({ who: `${headers.account ?? ip} ${path}`, end: resolve });
      if (waits) await promise;
      return 'made';
    });
  add('/heavy', HEAVY, true);
  add('/light', LIGHT, true);
  add('/at-once', HEAVY, false);
  await app.ready();
  return {
    ...{ app, shares, made },
    get: async (url: string, account?: string, remoteAddress = '192.0.2.1') => {
      const headers = account === undefined ? {} : { account };
      return (await app.inject({ url, headers, remoteAddress })).statusCode;
    },
    begun: async (count: number) => {
      await until('answers are made', () => made.length >= count);
      return made.map(({ who }) => who);
    },
  };
}

test('an account has one heavy answer made at a time, and others have theirs beside it', async t => {
  const { shares, made, get, begun } = await openApp(t);
  const answers = [get('/heavy', 'a'), get('/heavy', 'a'), get('/light', 'b')];
  t.deepEqual(await begun(2), ['a /heavy', 'b /light']);
  t.is(shares.waiting, 1);
  made[0]!.end();
  t.deepEqual((await begun(3)).at(-1), 'a /heavy');
  for (const { end } of made) end();
  t.deepEqual(await Promise.all(answers), [200, 200, 200]);
});

test('an account has several light answers made at once', async t => {
  const { shares, made, get, begun } = await openApp(t);
  const answers = Array.from({ length: HEAVY + 2 }, () => get('/light', 'a'));
  await begun(HEAVY);
  t.is(shares.waiting, 2);
  made[0]!.end();
  await begun(HEAVY + 1);
  made[1]!.end();
  await begun(HEAVY + 2);
  for (const { end } of made) end();
  await Promise.all(answers);
  t.is(shares.waiting, 0);
});

test('answers that one account has made at once leave others a turn of the event loop', async t => {
  const { get, begun } = await openApp(t);
  const answers = Array.from({ length: 50 }, () => get('/at-once', 'a'));
  answers.push(get('/at-once', 'b'));
  await Promise.all(answers);
  t.true((await begun(51)).indexOf('b /at-once') <= 2);
});

test('a caller who leaves the line is answered no more', async t => {
  const { app, shares, made, get, begun } = await openApp(t);
  await app.listen({ port: 0, host: '127.0.0.1' });
  const { port } = app.server.address() as AddressInfo;
  const first = get('/heavy', 'a');
  await begun(1);
  const leaving = connect(port, '127.0.0.1');
  leaving.write('GET /heavy HTTP/1.1\r\nhost: x\r\naccount: a\r\n\r\n');
  await until('it waits', () => shares.waiting === 1);
  leaving.destroy();
  await until('it waits no more', () => shares.waiting === 0);
  made[0]!.end();
  await first;
  const last = get('/light', 'a');
  t.deepEqual(await begun(2), ['a /heavy', 'a /light']);
  made[1]!.end();
  t.is(await last, 200);
});

test('strangers share by their networks', async t => {
  const { made, get, begun } = await openApp(t);
  const answers = [get('/heavy'), get('/heavy'), get('/heavy', undefined, '198.51.100.1')];
  t.deepEqual(await begun(2), ['192.0.2.1 /heavy', '198.51.100.1 /heavy']);
  for (const { end } of made) end();
  await begun(3);
  made[2]!.end();
  t.deepEqual(await Promise.all(answers), [200, 200, 200]);
});
