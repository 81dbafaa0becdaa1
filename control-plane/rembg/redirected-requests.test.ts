/** A caller with a key makes this service request rembg's interface, where no key is needed. */
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { Package } from '@matting/core/package.ts';
import { fundedCaller, storesOn } from '@matting/core/test/fixtures.ts';
import { pictureBody, Replicas } from '@matting/core/test/support/replicas.ts';
import { pngHeader } from '@matting/core/test/support/test-app.ts';
import type { Exchange } from '@matting/nodes/test/scripted-exchange.ts';
import { findFreePorts } from '@matting/program/ports/free-ports.ts';
import { createTestDatabase } from '@matting/test-support/database.ts';
import ava, { type ExecutionContext } from 'ava';
import { rembg } from './rembg.ts';

const test = ava.serial;

/** The first key of the database stands in. */
const standingIn: Package<object | undefined> = {
  ...rembg,
  async open(core) {
    const [key] = await core.stores.apiKeys.list();
    return (await rembg.open?.(core, { standInKeyId: key?.id })) ?? {};
  },
};

/** The result is a picture, so that another request can take it. */
async function echo(exchange: Exchange): Promise<void> {
  exchange.admit();
  const picture = await exchange.receive();
  exchange.announce(picture);
  exchange.send(picture);
  exchange.done(createHash('sha256').update(picture).digest());
  exchange.end();
}

type EnvOf = (ports: readonly number[]) => Readonly<Record<string, string>>;

async function openService(t: ExecutionContext, port: number, env: ReturnType<EnvOf>) {
  const database = await createTestDatabase('sqlite');
  const standIn = await fundedCaller(storesOn(await database.open()), 50);
  const replicas = await Replicas.open('sqlite', {
    ...{ packages: [standingIn], replicas: 1, database },
    env: { MATTING_PORT: String(port), MATTING_COMPAT: 'rembg', ...env },
  });
  t.teardown(() => replicas.close());
  await replicas.addNode({ script: echo });
  return { replicas, standIn, caller: await replicas.createCaller(10) };
}

/** A host of pictures that redirects some requests. */
async function openHost(t: ExecutionContext, port: number, elsewhere: () => string) {
  const server = createServer(({ url }, response) => {
    if (url === '/moved') response.writeHead(302, { location: elsewhere() }).end();
    else response.end(Buffer.concat([pngHeader(4, 3), Buffer.from(randomUUID())]));
  }).listen(port, '127.0.0.1');
  await once(server, 'listening');
  t.teardown(() => server.close());
  return `http://127.0.0.1:${port}`;
}

const DEEP = 3;

function nested(remove: string, picture: string): string {
  let url = picture;
  for (let deep = 0; deep < DEEP; deep += 1) url = `${remove}?url=${encodeURIComponent(url)}`;
  return url;
}

async function assertOwnCredits(t: ExecutionContext, envOf: EnvOf) {
  const [port, hostPort] = await findFreePorts(2);
  const { replicas, standIn, caller } = await openService(t, port, envOf([port, hostPort]));
  const credits = async ({ accountId }: { readonly accountId: string }) =>
    (await replicas.stores.ledger.balances(accountId))?.available;
  const remove = replicas.url(0, '/compat/rembg/api/remove');
  let moved = '';
  const host = await openHost(t, hostPort, () => moved);
  moved = nested(remove, `${host}/a.png`);

  const nearby = await fetch(`${remove}?url=${encodeURIComponent(`${host}/mine.png`)}`);
  t.is(nearby.status, 200, await nearby.text());
  t.is(await credits(standIn), 49, 'a program of this machine needs no key');

  for (const image_url of [moved, `${host}/moved`]) {
    const { status, body } = await replicas.post(caller, { image_url });
    t.deepEqual([status, body.code], [400, 'IMAGE_DOWNLOAD_FAILED'], image_url);
    t.regex(body.detail, /401/);
  }
  t.is(await credits(standIn), 49, 'nobody else’s credits');
  t.is(await credits(caller), 10);

  const first = await replicas.post(caller, pictureBody());
  const link = replicas.url(0, new URL(first.body.result.url).pathname);
  const again = await replicas.post(caller, { image_url: link });
  t.is(again.status, 200, JSON.stringify(again.body));
  t.is(await credits(caller), 8);
}

test('a download of this service is no program nearby, where any address is open', t =>
  assertOwnCredits(t, () => ({ MATTING_ALLOW_PRIVATE_ADDRESSES: 'true' })));

test('a download of this service is no program nearby, where its own network is open', t =>
  assertOwnCredits(t, ports => ({
    MATTING_ALLOWED_NETWORKS: '127.0.0.0/8',
    MATTING_FETCH_PORTS: ports.join(),
  })));
