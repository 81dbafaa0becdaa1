import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { after, before, it } from 'node:test';
import {
  createPublicResolver,
  createTrustedResolver,
} from '../../../src/sources/guard/resolve-host.ts';

const TYPE_A = 1;
const SERVFAIL = 2;
const NXDOMAIN = 3;
const V6 = '2606:4700:4700:0:0:0:0:1111';

/** The name server of these tests: it knows some names, and is silent about one. */
let server: Socket;
let resolve: ReturnType<typeof createPublicResolver>;

interface Question {
  readonly name: string;
  readonly type: number;
  /** Offset behind it. */
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

/** An answer with its question repeated: RFC 1035, section 4.1. */
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
    default:
      return answerTo(query, question, NXDOMAIN, []);
  }
}

before(async () => {
  server = createSocket('udp4', (query, peer) => {
    const reply = answer(query);
    if (reply !== undefined) server.send(reply, peer.port, peer.address);
  });
  await new Promise<void>(done => server.bind(0, '127.0.0.1', done));
  resolve = createPublicResolver([`127.0.0.1:${server.address().port}`]);
});

after(async () => {
  await new Promise<void>(done => server.close(done));
});

const NEVER = new AbortController().signal;

it('rejects where the name server fails', async () => {
  await assert.rejects(resolve('broken.example.com', NEVER, 'account'), { code: 'ESERVFAIL' });
});

it('gives up when its signal aborts', async () => {
  const patience = new AbortController();
  setTimeout(() => patience.abort(), 20);
  await assert.rejects(resolve('silent.example.com', patience.signal, 'account'), {
    code: 'ECANCELLED',
  });
});

it('finds none for a name that does not exist', async () => {
  assert.deepEqual(await resolve('nothing.example.com', NEVER, 'account'), []);
});

it('gives every address of both kinds, private ones too', async () => {
  const addresses = await resolve('both.example.com', NEVER, 'account');
  assert.deepEqual(addresses, ['93.184.215.14', '10.0.0.1', '2606:4700:4700::1111']);
});

it('gives the addresses of one kind where there are no others', async () => {
  assert.deepEqual(await resolve('six.example.com', NEVER, 'account'), ['2606:4700:4700::1111']);
});

it('makes do with one kind where the other cannot be had', async () => {
  assert.deepEqual(await resolve('half.example.com', NEVER, 'account'), ['1.1.1.1']);
});

it('on a trusted network knows the hosts file', async () => {
  const resolveTrusted = createTrustedResolver(1);
  const addresses = await resolveTrusted('localhost', NEVER, 'account');
  assert.ok(addresses.some(address => address === '127.0.0.1' || address === '::1'));
});

/** A system's resolver that never answers of `dead` names, until told to. */
function systemResolver() {
  const dead = Promise.withResolvers<void>();
  const asked: string[] = [];
  return {
    asked,
    giveUp: dead.resolve,
    lookupAll: async (host: string) => {
      asked.push(host);
      if (host.startsWith('dead')) await dead.promise;
      return ['10.0.0.1'];
    },
  };
}

it('on a trusted network finds a name while another account’s hang', async () => {
  const system = systemResolver();
  const resolveTrusted = createTrustedResolver(4, system.lookupAll);
  const hanging = Array.from({ length: 40 }, (_, n) => resolveTrusted(`dead${n}`, NEVER, 'a'));
  await new Promise(setImmediate);
  assert.deepEqual(system.asked, ['dead0', 'dead1']);
  for (const account of ['b', 'c', 'b']) {
    assert.deepEqual(await resolveTrusted('good', NEVER, account), ['10.0.0.1']);
  }
  assert.equal(system.asked.length, 5);
  system.giveUp();
  for (const addresses of await Promise.all(hanging)) assert.deepEqual(addresses, ['10.0.0.1']);
});

it('on a trusted network asks nothing for a caller that gave up while it waited', async () => {
  const system = systemResolver();
  const resolveTrusted = createTrustedResolver(1, system.lookupAll);
  const hanging = resolveTrusted('dead', NEVER, 'a');
  const patience = new AbortController();
  const late = resolveTrusted('dead too', patience.signal, 'a');
  patience.abort(new Error('patience'));
  await assert.rejects(late, /patience/);
  system.giveUp();
  await hanging;
  assert.deepEqual(await resolveTrusted('good', NEVER, 'b'), ['10.0.0.1']);
  assert.deepEqual(system.asked, ['dead', 'good']);
});
