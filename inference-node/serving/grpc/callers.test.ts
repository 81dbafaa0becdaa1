import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { connect as connectHttp2, constants } from 'node:http2';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { Metadata } from '@grpc/grpc-js';
import { type ChannelSecurity, TlsFiles } from '@matting/program/tls/tls-files.ts';
import { MatteServiceClient } from '@matting/proto/gen/matting/v1/matte_service.ts';
import { type Certificate, NO_TLS, TestAuthority } from '@matting/test-support/certificates.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import {
  chunk,
  header,
  MatteCaller,
  openTestNode,
  type TestNode,
  untilIdle,
} from '../test/test-node.ts';
import { followTokens } from './caller-tokens.ts';
import { Callers, tokenMetadata } from './callers.ts';

const test = ava.serial;

const FLEET_TOKEN = 'the-token-of-the-fleet';
const SHOP = { name: 'shop', token: 'the-token-of-the-shop' };
const LAB = { name: 'lab', token: 'the-token-of-the-lab!' };
const log = { info: () => undefined, warn: () => undefined };

let node: TestNode | undefined;
const endings: (() => unknown)[] = [];

test.afterEach.always(async () => {
  for (const end of endings.splice(0).reverse()) await end();
  await node?.close();
  node = undefined;
});

test('a control plane › is known by the token of the fleet, and by the other one that the node accepts', t => {
  const [next, own] = ['the-next-token-of-the-fleet', FLEET_TOKEN];
  const callers = new Callers({ tokens: { fleet: [own, next], direct: [SHOP] }, isOpen: false });
  const kindOf = (token: string) => callers.identify(tokenMetadata(token), {})?.kind;
  const known = ['fleet', 'fleet', 'direct'];
  t.deepEqual([own, next, SHOP.token].map(kindOf), known);
  const bare = new Metadata();
  bare.set('authorization', own);
  for (const wrong of [new Metadata(), bare, tokenMetadata(''), tokenMetadata(`${own}x`)]) {
    t.is(callers.identify(wrong, {}), undefined);
  }
});

const callers = { callerTokens: [SHOP, LAB], imagesMax: () => 2 };
const call = (token: string) => new MatteCaller(node!, { token }).send(header());

const prepare = async () => {
  node = await openTestNode({ token: FLEET_TOKEN, callers });
};

test('a direct caller › is let in by its own token and by no other', async t => {
  await prepare();
  for (const { token } of [SHOP, LAB]) {
    await new MatteCaller(node!, { token }).serve('12345');
  }
  for (const token of [`${SHOP.token}x`, SHOP.name, `${SHOP.name}:${SHOP.token}`]) {
    await call(token).refused({ code: 'INVALID_NODE_TOKEN' });
  }
  const twice = tokenMetadata(SHOP.token);
  twice.add('authorization', `Bearer ${FLEET_TOKEN}`);
  const options = { tokens: { fleet: [FLEET_TOKEN], direct: [SHOP] }, isOpen: false };
  t.is(new Callers(options).identify(twice, {}), undefined);
});

test('a direct caller › at its bound is refused before a byte, and nobody else is', async t => {
  await prepare();
  const held = [call(SHOP.token), call(SHOP.token)];
  for (const caller of held) await caller.until('admitted');
  await call(SHOP.token).refused({ code: 'CALLER_OVER_LIMIT', status: 8, retryable: true });
  // Two of four permits are left, although the shop wants them.
  for (const token of [FLEET_TOKEN, LAB.token]) await call(token).until('admitted');
  await t.notThrowsAsync(call(FLEET_TOKEN).refused({ code: 'NODE_OVERLOADED' }));
});

test('a direct caller › has its place back however its image ended', async t => {
  await prepare();
  const endings: ((caller: MatteCaller) => unknown)[] = [
    caller => caller.send(chunk('12345')).call.end(),
    caller => caller.call.cancel(),
    caller => caller.send(chunk('much too long')).call.end(),
  ];
  for (const end of endings) {
    const pair = [call(SHOP.token), call(SHOP.token)];
    for (const caller of pair) await caller.until('admitted');
    for (const caller of pair) end(caller);
    for (const caller of pair) await caller.ended;
    await untilIdle(node!);
  }
  await call(SHOP.token).until('admitted');
  // An image without room on the node does not count for its caller.
  for (let image = 0; image < 3; image += 1) await call(FLEET_TOKEN).until('admitted');
  for (let image = 0; image < 3; image += 1) {
    await t.notThrowsAsync(call(SHOP.token).refused({ code: 'NODE_OVERLOADED' }));
  }
});

/** Mounts files as Kubernetes mounts a Secret: links through one that a rename replaces. */
class Mounted {
  readonly directory: string;
  #revision = 0;

  constructor(directory: string) {
    this.directory = directory;
  }

  file(name: string): string {
    return path.join(this.directory, name);
  }

  async write(files: Readonly<Record<string, string>>): Promise<void> {
    this.#revision += 1;
    const revision = `..${this.#revision}`;
    await mkdir(this.file(revision));
    for (const [name, text] of Object.entries(files)) {
      await writeFile(this.file(path.join(revision, name)), text);
      if (this.#revision === 1) await symlink(path.join('..data', name), this.file(name));
    }
    await symlink(revision, this.file('..next'));
    await rename(this.file('..next'), this.file('..data'));
  }
}

test('tokens of files › work both while they change, and the old one no more once it is gone', async t => {
  const [old, next] = [FLEET_TOKEN, 'the-next-token-of-the-fleet'];
  const directory = await mkdtemp(path.join(tmpdir(), 'matting-tokens-'));
  endings.push(() => rm(directory, { recursive: true }));
  const mounted = new Mounted(directory);
  await mounted.write({ own: old, callers: `shop:${SHOP.token}` });
  node = await openTestNode({ token: old, callers: { callerTokens: [SHOP] } });
  const logged: string[] = [];
  const say = (fields: object, message: string) =>
    logged.push(`${message} ${JSON.stringify(fields)}`);
  const settings = {
    nodeTokens: { items: [old], file: mounted.file('own') },
    callerTokens: { items: [SHOP], file: mounted.file('callers') },
  };
  const following = followTokens(settings, { info: say, warn: say }, tokens =>
    node!.callers.know(tokens),
  );
  assert.ok(following);
  endings.push(() => following.close());
  const opens = (token: string) => new MatteCaller(node!, { token }).serve('12345');
  const isRefused = (token: string) => call(token).refused({ code: 'INVALID_NODE_TOKEN' });
  const held = await new MatteCaller(node, { token: old }).announce();

  await isRefused(next);
  await mounted.write({ own: `${old}\n${next}`, callers: `lab:${LAB.token}` });
  await following.reload();
  for (const token of [old, next, LAB.token]) await opens(token);
  await isRefused(SHOP.token);
  for (const own of ['', 'half-of-it', `${LAB.token}`]) {
    await mounted.write({ own, callers: `lab:${LAB.token}` });
    await following.reload();
    await following.reload();
    await opens(old);
  }
  await mounted.write({ own: next, callers: '# nobody' });
  await following.reload();
  await opens(next);
  for (const token of [old, LAB.token]) await isRefused(token);
  await new MatteCaller(node).send(header()).refused({ code: 'INVALID_NODE_TOKEN' });
  held.send(chunk('12345')).call.end();
  t.is(await held.ended, undefined);
  t.is(logged.filter(line => line.startsWith('token files changed')).length, 2);
  t.is(logged.filter(line => line.startsWith('files not usable')).length, 2);
  for (const token of [old, next, LAB.token]) t.false(logged.join().includes(token));
});

test('tokens of files › open the node to nobody when the last one goes', t => {
  const callers = new Callers({ tokens: { fleet: [], direct: [SHOP] }, isOpen: false });
  t.is(callers.identify(tokenMetadata(SHOP.token), {})?.kind, 'direct');
  callers.know({ fleet: [], direct: [] });
  t.is(callers.identify(new Metadata(), {}), undefined);
});

class Party {
  readonly directory: string;
  readonly files: TlsFiles;

  private constructor(directory: string, files: TlsFiles) {
    this.directory = directory;
    this.files = files;
  }

  static async open(
    own: Certificate | undefined,
    authorities: { clientCa?: string; serverCa?: string },
    serverName?: string,
  ): Promise<Party> {
    const directory = await mkdtemp(path.join(tmpdir(), 'matting-party-'));
    endings.push(() => rm(directory, { recursive: true }));
    const at = (name: string) => path.join(directory, name);
    if (own) await writeFile(at('cert.pem'), own.cert);
    if (own) await writeFile(at('key.pem'), own.key);
    for (const [name, text] of Object.entries(authorities)) await writeFile(at(name), text);
    const files = await TlsFiles.open(
      {
        ...NO_TLS,
        identity: own && { certFile: at('cert.pem'), keyFile: at('key.pem') },
        clientCaFile: authorities.clientCa && at('clientCa'),
        serverCaFile: authorities.serverCa && at('serverCa'),
        serverName,
      },
      { log, pollMs: 3_600_000 },
    );
    endings.push(() => files.close());
    return new Party(directory, files);
  }

  async replace(files: Readonly<Record<string, string>>): Promise<void> {
    for (const [name, text] of Object.entries(files)) {
      await writeFile(path.join(this.directory, name), text);
    }
    await this.files.reload();
  }
}

function clientOf(security: ChannelSecurity): Pick<TestNode, 'client'> {
  const client = new MatteServiceClient(node!.address, security.credentials, {
    ...security.options,
    'grpc.use_local_subchannel_pool': 1,
  });
  endings.push(() => client.close());
  return { client };
}

async function succeeds(security: ChannelSecurity, token?: string): Promise<void> {
  await new MatteCaller(clientOf(security), { token }).serve('12345');
}

async function refused(code: string, security: ChannelSecurity, token?: string): Promise<void> {
  const caller = new MatteCaller(clientOf(security), { token, deadlineMs: 5000 }).send(header());
  await caller.refused({ code });
}

const authority = new TestAuthority();
let server: Party;

async function openNode(own: Certificate, clientCa?: string): Promise<void> {
  server = await Party.open(own, clientCa === undefined ? {} : { clientCa });
  node = await openTestNode({
    token: FLEET_TOKEN,
    credentials: server.files.serverCredentials(),
    callers: { certificatesChecked: server.files.checksCallers, imagesMax: () => 1 },
  });
}

test('a node with TLS › is reached by whoever trusts its authority, with the token as ever', async t => {
  await openNode(authority.issue('node'));
  const { files } = await Party.open(undefined, { serverCa: authority.cert });
  await succeeds(files.channelSecurity(), FLEET_TOKEN);
  await refused('INVALID_NODE_TOKEN', files.channelSecurity());
  const stranger = await Party.open(undefined, { serverCa: new TestAuthority().cert });
  await refused('NODE_UNAVAILABLE', stranger.files.channelSecurity(), FLEET_TOKEN);
  const plain = await Party.open(undefined, {});
  await t.notThrowsAsync(refused('NODE_UNAVAILABLE', plain.files.channelSecurity(), FLEET_TOKEN));
});

test('a node with TLS › has to have the name it is reached at, or the one that is expected', async t => {
  await openNode(authority.issue('node', ['nodes.internal']));
  const unnamed = await Party.open(undefined, { serverCa: authority.cert });
  await refused('NODE_UNAVAILABLE', unnamed.files.channelSecurity(), FLEET_TOKEN);
  const named = await Party.open(undefined, { serverCa: authority.cert }, 'nodes.internal');
  await t.notThrowsAsync(succeeds(named.files.channelSecurity(), FLEET_TOKEN));
});

test('a node with TLS › that checks certificates lets nobody in without one', async t => {
  await openNode(authority.issue('node'), authority.cert);
  const without = await Party.open(undefined, { serverCa: authority.cert });
  await refused('NODE_UNAVAILABLE', without.files.channelSecurity(), FLEET_TOKEN);
  const foreign = new TestAuthority().issue('shop', []);
  const stranger = await Party.open(foreign, { serverCa: authority.cert });
  await t.notThrowsAsync(
    refused('NODE_UNAVAILABLE', stranger.files.channelSecurity(), FLEET_TOKEN),
  );
});

test('a node with TLS › takes a certificate it checked for a token, and bounds its owner', async t => {
  await openNode(authority.issue('node'), authority.cert);
  const shop = await Party.open(authority.issue('shop', []), { serverCa: authority.cert });
  const lab = await Party.open(authority.issue('lab', []), { serverCa: authority.cert });
  await succeeds(shop.files.channelSecurity());
  // The certificate does not mend a wrong token.
  await refused('INVALID_NODE_TOKEN', shop.files.channelSecurity(), 'a-wrong-token-of-length');
  await new MatteCaller(clientOf(shop.files.channelSecurity())).announce();
  await refused('CALLER_OVER_LIMIT', shop.files.channelSecurity());
  await succeeds(lab.files.channelSecurity());
  await t.notThrowsAsync(succeeds(shop.files.channelSecurity(), FLEET_TOKEN));
});

test('a node with TLS › takes new certificates during calls, and forgets an old authority', async t => {
  const own = authority.issue('node');
  const clients = new TestAuthority();
  await openNode(own, clients.cert);
  const shop = await Party.open(clients.issue('shop', []), { serverCa: authority.cert });
  const under = await new MatteCaller(clientOf(shop.files.channelSecurity())).announce();

  const [nextServers, nextClients] = [new TestAuthority(), new TestAuthority()];
  const next = nextServers.issue('node');
  await server.replace({
    'cert.pem': next.cert,
    'key.pem': next.key,
    clientCa: nextClients.cert,
  });
  // Both of its files are outdated, so neither side trusts the other.
  await refused('NODE_UNAVAILABLE', shop.files.channelSecurity());
  await shop.replace({ serverCa: nextServers.cert });
  await refused('NODE_UNAVAILABLE', shop.files.channelSecurity());
  const renewed = nextClients.issue('shop', []);
  await shop.replace({ 'cert.pem': renewed.cert, 'key.pem': renewed.key });
  await succeeds(shop.files.channelSecurity());
  // The connection made before does not count.
  under.send(chunk('12345')).call.end();
  t.is(await under.ended, undefined);
});

const KEEPALIVE_MS = 50;
const aging = () =>
  openTestNode({
    ...{ token: FLEET_TOKEN, callers, connectionAgeMaxMs: 100 },
    serverOptions: { 'grpc.keepalive_time_ms': KEEPALIVE_MS },
  });

/** Resolves when the node has asked connections of that age to close, and pinged them. */
async function oldConnectionsEnded(): Promise<void> {
  const session = connectHttp2(`http://${node!.address}`);
  const [code] = await once(session, 'goaway');
  assert.equal(code, constants.NGHTTP2_NO_ERROR);
  session.destroy();
  await new Promise(resolve => setTimeout(resolve, 3 * KEEPALIVE_MS));
}

function watching(token: string) {
  const stream = node!.client.watchCapacity({}, tokenMetadata(token));
  const seen = { stream, reports: 0, ended: false };
  stream.on('data', () => {
    seen.reports += 1;
  });
  stream.on('error', () => {
    seen.ended = true;
  });
  return seen;
}

test('a connection that is old › finishes its call and its capacity stream, and the next call has a new one', async t => {
  node = await aging();
  const seen = watching(SHOP.token);
  const caller = await new MatteCaller(node, SHOP).announce();
  caller.send(chunk('12'));
  // Two in sequence: by then the first connection is over its age.
  await oldConnectionsEnded();
  await oldConnectionsEnded();
  caller.send(chunk('345')).call.end();
  t.is(await caller.ended, undefined);
  const before = seen.reports;
  node.status.drain('command');
  await until('another report', () => seen.reports > before);
  t.false(seen.ended);
  t.is(node.connections.known, 1);
  await call(LAB.token).refused({ code: 'NODE_UNAVAILABLE' });
  t.is(node.connections.known, 2);
  seen.stream.cancel();
});

test('a connection that is old › of a control plane stays', async t => {
  node = await aging();
  const seen = watching(FLEET_TOKEN);
  await oldConnectionsEnded();
  await oldConnectionsEnded();
  await new MatteCaller(node, { token: FLEET_TOKEN }).serve('12345');
  t.is(node.connections.known, 1);
  t.false(seen.ended);
  seen.stream.cancel();
});
