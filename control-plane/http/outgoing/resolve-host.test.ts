import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { utimesSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava from 'ava';
import { OutgoingGuard } from './outgoing-guard.ts';
import { ForbiddenUrlError } from './outgoing-url.ts';
import { createInnerResolver, createPublicResolver, createSystemResolver } from './resolve-host.ts';

const test = ava.serial;

const directory = await temporaryFolder({ teardown: test.after.always });
const NEVER = new AbortController().signal;

const TYPE_A = 1;
const SERVFAIL = 2;
const NXDOMAIN = 3;
const REFUSED = 5;
const V6 = '2606:4700:4700:0:0:0:0:1111';
const SIX = '2606:4700:4700::1111';

const heard = new Set<string>();

let server: Socket;
let resolve: ReturnType<typeof createPublicResolver>;

interface Question {
  readonly name: string;
  readonly type: number;
  readonly end: number;
}

function readQuestion(query: Buffer): Question {
  const labels: string[] = [];
  let offset = 12;
  for (let length = query.readUInt8(offset); length !== 0; length = query.readUInt8(offset)) {
    labels.push(query.toString('latin1', offset + 1, offset + 1 + length));
    offset += 1 + length;
  }
  return { name: labels.join('.'), type: query.readUInt16BE(offset + 1), end: offset + 5 };
}

/** Repeats its question (RFC 1035 section 4.1). */
function answerTo(query: Buffer, question: Question, rcode: number, data: Buffer[]): Buffer {
  const header = Buffer.from(query.subarray(0, 12));
  header.writeUInt16BE(0x8180 | rcode, 2);
  header.writeUInt16BE(data.length, 6);
  header.writeUInt32BE(0, 8);
  const records = data.map(bytes => {
    const record = Buffer.alloc(12);
    record.writeUInt16BE(0xc00c, 0);
    record.writeUInt16BE(question.type, 2);
    record.writeUInt16BE(1, 4);
    record.writeUInt16BE(bytes.length, 10);
    return Buffer.concat([record, bytes]);
  });
  return Buffer.concat([header, query.subarray(12, question.end), ...records]);
}

function v6Bytes(): Buffer {
  const words = V6.split(':').map(word => Number.parseInt(word, 16));
  return Buffer.from(words.flatMap(word => [word >>> 8, word & 0xff]));
}

function answer(query: Buffer): Buffer | undefined {
  const question = readQuestion(query);
  const isV4 = question.type === TYPE_A;
  switch (question.name) {
    case 'both.example.com': {
      const data = isV4 ? [Buffer.of(93, 184, 215, 14), Buffer.of(10, 0, 0, 1)] : [v6Bytes()];
      return answerTo(query, question, 0, data);
    }
    case 'six.example.com':
      return answerTo(query, question, 0, isV4 ? [] : [v6Bytes()]);
    case 'half.example.com':
      return answerTo(query, question, isV4 ? 0 : SERVFAIL, isV4 ? [Buffer.of(1, 1, 1, 1)] : []);
    case 'broken.example.com':
      return answerTo(query, question, SERVFAIL, []);
    case 'silent.example.com':
      return undefined;
    case 'no-aaaa.example.com':
      return isV4 ? answerTo(query, question, 0, [Buffer.of(1, 1, 1, 1)]) : undefined;
    case 'no-a.example.com':
      return isV4 ? undefined : answerTo(query, question, 0, [v6Bytes()]);
    case 'refused.example.com':
      return answerTo(query, question, REFUSED, []);
    case 'lost.example.com': {
      // The first packet of each kind is lost.
      const key = `${question.name} ${question.type}`;
      if (!heard.has(key)) return void heard.add(key);
      return answerTo(query, question, 0, isV4 ? [Buffer.of(1, 1, 1, 1)] : [v6Bytes()]);
    }
    default:
      return answerTo(query, question, NXDOMAIN, []);
  }
}

test.before(async () => {
  server = createSocket('udp4', (query, peer) => {
    const reply = answer(query);
    if (reply !== undefined) server.send(reply, peer.port, peer.address);
  });
  await new Promise<void>(done => server.bind(0, '127.0.0.1', done));
  resolve = createPublicResolver([`127.0.0.1:${server.address().port}`]);
});

test.after.always(() => new Promise<void>(done => server.close(done)));

test('rejects where the name server fails', async t => {
  await t.throwsAsync(resolve('broken.example.com', NEVER, 'account'), { code: 'ESERVFAIL' });
});

test('gives up when its signal aborts', async t => {
  const patience = new AbortController();
  setTimeout(() => patience.abort(), 20);
  await t.throwsAsync(resolve('silent.example.com', patience.signal, 'account'), {
    code: 'ECANCELLED',
  });
});

for (const [what, name, addresses] of [
  ['none for a name that does not exist', 'nothing', []],
  ['every address of both kinds, private ones too', 'both', ['93.184.215.14', '10.0.0.1', SIX]],
  ['the addresses of one kind where there are no others', 'six', [SIX]],
  ['those of one kind where the other cannot be had', 'half', ['1.1.1.1']],
  ['both kinds where the first packets were lost', 'lost', ['1.1.1.1', SIX]],
] as const) {
  test(`gives ${what}`, async t => {
    t.deepEqual(await resolve(`${name}.example.com`, NEVER, 'account'), [...addresses]);
  });
}

for (const [kind, name, addresses] of [
  ['AAAA', 'no-aaaa', ['1.1.1.1']],
  ['A', 'no-a', [SIX]],
] as const) {
  test(`does not wait until it gives up where ${kind} is never answered`, async t => {
    const patience = new AbortController();
    const givenUp = resolve('silent.example.com', patience.signal, 'account').catch(() => []);
    const found = resolve(`${name}.example.com`, NEVER, 'account');
    t.deepEqual(await Promise.race([found, givenUp]), [...addresses]);
    patience.abort();
  });
}

test('of the system knows the hosts file', async t => {
  const resolveBySystem = createSystemResolver(1);
  const addresses = await resolveBySystem('localhost', NEVER, 'account');
  t.true(addresses.some(address => address === '127.0.0.1' || address === '::1'));
});

const HOSTS = [
  '127.0.0.1 localhost',
  '10.0.0.7\thost.docker.internal Both.Example.com # a comment half.example.com',
  '# 10.0.0.8 six.example.com',
  'fd00::7 host.docker.internal',
  'nonsense nothing.example.com',
];
const SYSTEM = '10.0.0.9';

for (const [name, what, expected] of [
  ['host.docker.internal', 'of the hosts file', ['10.0.0.7', 'fd00::7']],
  ['both.example.com', 'of the hosts file, before the DNS', ['10.0.0.7']],
  ['half.example.com', 'of the DNS', ['1.1.1.1']],
  ['minio.storage', 'of the system, such as of a search list', [SYSTEM]],
  ['refused.example.com', 'of the system, if the DNS refuses the name', [SYSTEM]],
  ['broken.example.com', 'of the system, if the DNS fails', [SYSTEM]],
] as const) {
  test(`for inner networks gives the addresses ${what}`, async t => {
    const hostsFile = path.join(directory, 'hosts');
    writeFileSync(hostsFile, HOSTS.join('\n'));
    const system = async () => [SYSTEM];
    const resolveInner = createInnerResolver({ system, dns: resolve, hostsFile });
    t.deepEqual(await resolveInner(name, NEVER, 'account'), [...expected]);
  });
}

test('for inner networks reads a hosts file that has changed, and needs none', async t => {
  const hostsFile = path.join(directory, 'changing');
  const resolveInner = createInnerResolver({ system: async () => [], dns: resolve, hostsFile });
  const lookUp = () => resolveInner('host.docker.internal', NEVER, 'account');
  t.deepEqual(await lookUp(), []);
  writeFileSync(hostsFile, HOSTS.join('\n'));
  t.deepEqual(await lookUp(), ['10.0.0.7', 'fd00::7']);
  writeFileSync(hostsFile, '10.0.0.77 host.docker.internal');
  utimesSync(hostsFile, 1, 1);
  t.deepEqual(await lookUp(), ['10.0.0.77']);
});

test('for inner networks leaves a name to nobody else while the DNS is silent', async t => {
  const patience = new AbortController();
  const system = () => assert.fail('the system was queried');
  const resolveInner = createInnerResolver({ system, dns: resolve });
  setTimeout(() => patience.abort(), 20);
  await t.throwsAsync(resolveInner('silent.example.com', patience.signal, 'account'));
});

test('addresses of the hosts file are checked as all others are', async t => {
  const hostsFile = path.join(directory, 'checked');
  writeFileSync(
    hostsFile,
    '10.0.0.7 in.example.com\n10.1.0.7 out.example.com\n10.0.0.7 out.example.com',
  );
  const resolveHost = createInnerResolver({ system: async () => [], dns: resolve, hostsFile });
  const policy = {
    fetchPorts: [80],
    allowPrivateAddresses: false,
    allowedNetworks: ['10.0.0.0/16'],
  };
  const guard = new OutgoingGuard({ policy, resolveHost });
  const check = (host: string) => guard.requireAddresses(host, NEVER, 'account');
  t.deepEqual(await check('in.example.com'), ['10.0.0.7']);
  await t.throwsAsync(check('out.example.com'), { instanceOf: ForbiddenUrlError });
});

/** Never answers for `dead` names until `giveUp`. */
function systemResolver() {
  const dead = Promise.withResolvers<void>();
  const lookedUp: string[] = [];
  return {
    lookedUp,
    giveUp: dead.resolve,
    lookupAll: async (host: string) => {
      lookedUp.push(host);
      if (host.startsWith('dead')) await dead.promise;
      return ['10.0.0.1'];
    },
  };
}

test('of the system finds a name while another account’s hang', async t => {
  const system = systemResolver();
  const resolveBySystem = createSystemResolver(4, system.lookupAll);
  const hanging = Array.from({ length: 40 }, (_, n) => resolveBySystem(`dead${n}`, NEVER, 'a'));
  await new Promise(setImmediate);
  t.deepEqual(system.lookedUp, ['dead0', 'dead1']);
  for (const account of ['b', 'c', 'b']) {
    t.deepEqual(await resolveBySystem('good', NEVER, account), ['10.0.0.1']);
  }
  t.is(system.lookedUp.length, 5);
  system.giveUp();
  for (const addresses of await Promise.all(hanging)) t.deepEqual(addresses, ['10.0.0.1']);
});

test('of the system asks nothing for a caller that gave up while it waited', async t => {
  const system = systemResolver();
  const resolveBySystem = createSystemResolver(1, system.lookupAll);
  const hanging = resolveBySystem('dead', NEVER, 'a');
  const patience = new AbortController();
  const late = resolveBySystem('dead too', patience.signal, 'a');
  patience.abort(new Error('patience'));
  await t.throwsAsync(late, { message: /patience/ });
  system.giveUp();
  await hanging;
  t.deepEqual(await resolveBySystem('good', NEVER, 'b'), ['10.0.0.1']);
  t.deepEqual(system.lookedUp, ['dead', 'good']);
});
