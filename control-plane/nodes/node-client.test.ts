import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type ServerHttp2Session } from 'node:http2';
import type { AddressInfo } from 'node:net';
import { Readable } from 'node:stream';
import { status } from '@grpc/grpc-js';
import type { ErrorCode } from '@matting/proto/contract/errors.ts';
import { CHUNK_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  type MatteResponse,
  type ResultHeader,
  Stage,
  Subject,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { until } from '@matting/test-support/waiting.ts';
import ava from 'ava';
import { outcomeOf } from './attempt-outcome.ts';
import { NodeClient } from './node-client.ts';
import { cutOutOf, type Exchange, type Script } from './test/scripted-exchange.ts';
import { callOf, ScriptedNode, TEST_TOKEN } from './test/scripted-node.ts';

const test = ava.serial;

const INPUT = Buffer.from('abc');
let node: ScriptedNode;
let client: NodeClient;

test.before(async () => {
  node = await ScriptedNode.start();
  client = new NodeClient(node.address, () => TEST_TOKEN);
});

test.after.always(async () => {
  client.close();
  await node.down();
});

test('lets a node send ahead further than http2 alone would', async t => {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const connected = once(server, 'session') as Promise<[ServerHttp2Session]>;
  const own = new NodeClient(`127.0.0.1:${port}`, () => TEST_TOKEN);
  const calling = own.getNodeInfo().catch(() => undefined);
  const [session] = await connected;
  await once(session, 'remoteSettings');
  // The frame that widens the connection's window follows the settings.
  await new Promise(resolve => session.ping(resolve));
  const mebibytes = 1024 * 1024;
  t.true((session.remoteSettings.initialWindowSize ?? 0) >= 4 * mebibytes);
  t.true((session.state.remoteWindowSize ?? 0) >= 4 * mebibytes);
  session.destroy();
  own.close();
  await calling;
  await new Promise(resolve => server.close(resolve));
});

test('an upload › begins only after Admitted, in chunks of at most 256 KiB', async t => {
  let opened = false;
  let openedBefore = true;
  node.script = async exchange => {
    // An eager client would have sent within this.
    await new Promise(resolve => setTimeout(resolve, 30));
    openedBefore = opened;
    await exchange.cutOut();
  };
  const input = randomBytes(2 * 1024 * 1024 + 17);
  const chunks: Buffer[] = [];
  const request = callOf(input, {
    sink: { write: async chunk => void chunks.push(Buffer.from(chunk)) },
    openInput: async () => {
      opened = true;
      return Readable.from([input], { objectMode: false });
    },
  });
  const outcome = await client.matte(request);
  t.is(outcome.kind, 'done');
  t.false(openedBefore);
  t.true(Buffer.concat(chunks).equals(cutOutOf(input)));
  t.true(chunks.every(chunk => chunk.length <= CHUNK_BYTES_MAX));
});

test('an upload › waits for a node that does not read', async t => {
  let read = 0;
  const pieces = 400;
  node.script = async exchange => {
    exchange.admit();
    await exchange.cancelled;
  };
  const stop = new AbortController();
  async function* source() {
    for (; read < pieces; read += 1) yield Buffer.alloc(CHUNK_BYTES_MAX);
  }
  const attempt = client.matte(
    callOf(Buffer.alloc(0), {
      inputBytes: pieces * CHUNK_BYTES_MAX,
      openInput: async () => Readable.from(source()),
      signal: stop.signal,
    }),
  );
  let before = -1;
  // Two equal reads 100 ms apart: it stopped reading.
  while (before !== read || read === 0) {
    before = read;
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  t.true(read < pieces / 4, `${read} of ${pieces} chunks were read ahead`);
  stop.abort();
  t.deepEqual(await attempt, { kind: 'aborted' });
});

test('an upload › of another length than announced is our fault', async t => {
  node.script = exchange => exchange.cutOut();
  const outcome = await client.matte(callOf(INPUT, { inputBytes: 4 }));
  t.is(outcome.kind, 'local-fault');
});

test('an upload › that stalls does not outlive its call', async t => {
  node.script = async exchange => {
    exchange.admit();
    exchange.fail('ENGINE_LOST');
  };
  let destroyed = false;
  const stalled = new Readable({
    read: () => undefined,
    destroy: (error, done) => {
      destroyed = true;
      done(error);
    },
  });
  const outcome = await client.matte(callOf(INPUT, { openInput: async () => stalled }));
  t.true(outcome.kind === 'lost' && outcome.withProcess);
  t.true(destroyed);
});

test('a result › comes no faster than it can be stored', async t => {
  const result = randomBytes(64 * CHUNK_BYTES_MAX);
  let sent = 0;
  node.script = async exchange => {
    exchange.admit();
    await exchange.receive();
    exchange.announce(result);
    for (; sent < 64; sent += 1) {
      const start = sent * CHUNK_BYTES_MAX;
      await exchange.sendPaced(result.subarray(start, start + CHUNK_BYTES_MAX));
    }
    exchange.done(createHash('sha256').update(result).digest());
    exchange.end();
  };
  const { promise: released, resolve: release } = Promise.withResolvers<void>();
  let writes = 0;
  const attempt = client.matte(
    callOf(INPUT, {
      sink: {
        write: async () => {
          writes += 1;
          await released;
        },
      },
    }),
  );
  let before = -1;
  while (before !== sent || writes === 0) {
    before = sent;
    await new Promise(resolve => setTimeout(resolve, 100));
  }
  t.is(writes, 1);
  // The 4 MiB window and the buffers of sockets and streams.
  t.true(sent < 60, `${sent} chunks were taken ahead`);
  release();
  const outcome = await attempt;
  t.is(outcome.kind === 'done' && outcome.result.bytes, result.length);
});

test('a result › that cannot be stored is our fault', async t => {
  node.script = exchange => exchange.cutOut();
  const full = new Error('disk full');
  const outcome = await client.matte(
    callOf(INPUT, { sink: { write: () => Promise.reject(full) } }),
  );
  t.deepEqual(outcome, { kind: 'local-fault', error: full, reading: false });
});

test('a result › that is complete stands even if the connection breaks before the status', async t => {
  node.script = async exchange => {
    exchange.admit();
    const result = cutOutOf(await exchange.receive());
    exchange.announce(result);
    exchange.send(result);
    exchange.done(createHash('sha256').update(result).digest());
    await new Promise(resolve => setTimeout(resolve, 50));
    exchange.fail('NODE_UNAVAILABLE');
  };
  const outcome = await client.matte(callOf(INPUT));
  t.is(outcome.kind, 'done');
});

test('an end › before Admitted is a refusal if waiting may help', async t => {
  for (const [code, kind] of [
    ['NODE_OVERLOADED', 'refused'],
    ['NODE_UNAVAILABLE', 'refused'],
    ['INVALID_NODE_TOKEN', 'refused'],
    ['CALL_DEADLINE_EXCEEDED', 'refused'],
    ['INVALID_REQUEST', 'rejected'],
    ['NODE_FAULT', 'node-fault'],
    ['IMAGE_RESOLUTION_TOO_LARGE', 'image-fault'],
    ['INVALID_PARAMETER', 'image-fault'],
  ] as const) {
    node.script = async exchange => exchange.fail(code);
    t.is((await client.matte(callOf(INPUT))).kind, kind, code);
  }
});

test('an end › by our own abort is aborted, and the node is told', async t => {
  const { promise: admitted, resolve: onAdmitted } = Promise.withResolvers<void>();
  let cancelled = false;
  node.script = async exchange => {
    exchange.admit();
    await exchange.cancelled;
    cancelled = true;
  };
  const stop = new AbortController();
  const attempt = client.matte(
    callOf(INPUT, { signal: stop.signal, onAdmitted: () => onAdmitted() }),
  );
  await admitted;
  stop.abort();
  t.deepEqual(await attempt, { kind: 'aborted' });
  await until('the end of the call at the node', () => cancelled);
  t.deepEqual(await client.matte(callOf(INPUT, { signal: stop.signal })), {
    kind: 'aborted',
  });
});

test('an end › with a wrong token, or of a node that does not answer, is a refusal', async t => {
  node.script = exchange => exchange.cancelled;
  const refusing: readonly [NodeClient, ErrorCode][] = [
    [new NodeClient(node.address, () => 'another-token'), 'INVALID_NODE_TOKEN'],
    [new NodeClient('127.0.0.1:1', () => TEST_TOKEN), 'NODE_UNAVAILABLE'],
    [new NodeClient(node.address, () => TEST_TOKEN, undefined, 200), 'NODE_UNAVAILABLE'],
  ];
  for (const [one, code] of refusing) {
    const outcome = await one.matte(callOf(INPUT));
    t.is(outcome.kind === 'refused' && outcome.error.code, code);
    one.close();
  }
});

const bare = (code: status) =>
  Object.assign(new Error('x'), { code, details: 'x', metadata: { get: () => [] } });

test('outcomeOf › takes a bare status of the transport for a lost node after Admitted', t => {
  for (const code of [status.UNAVAILABLE, status.CANCELLED, status.INTERNAL]) {
    const outcome = outcomeOf(bare(code), true, false);
    t.is(outcome.kind === 'lost' && outcome.withProcess, false, status[code]);
  }
});

test('outcomeOf › takes any other bare status for a fault of the node', t => {
  for (const code of [status.UNKNOWN, status.ABORTED, status.RESOURCE_EXHAUSTED]) {
    t.is(outcomeOf(bare(code), true, false).kind, 'node-fault', status[code]);
  }
  t.is(outcomeOf('thrown text', true, false).kind, 'node-fault');
});

/** Far more messages than a call needs, in an otherwise valid answer. */
const FLOOD = 4096;
const LONG = Buffer.alloc(FLOOD, 'x');
const LONG_SHA256 = createHash('sha256').update(LONG).digest();

function flooding(flood: (exchange: Exchange) => void): Script {
  return async exchange => {
    exchange.admit();
    await exchange.receive();
    flood(exchange);
    exchange.end();
  };
}

function repeated(message: MatteResponse['message'], end: (exchange: Exchange) => void): Script {
  return flooding(exchange => {
    exchange.announce(LONG, { matteBytes: exchange.header.matte ? 1 : 0 });
    for (let sent = 0; sent < FLOOD; sent += 1) exchange.write(message);
    end(exchange);
    exchange.done(LONG_SHA256);
  });
}

const sendsAll = (exchange: Exchange) => exchange.send(LONG);
const matteAndAll = (exchange: Exchange) => {
  exchange.write({ $case: 'matteChunk', value: { data: Buffer.from('m') } });
  exchange.send(LONG);
};
const empty = { data: Buffer.alloc(0) };
const one = { data: Buffer.from('x') };
const stage = { stage: Stage.STAGE_INFERRING };
const box = { left: 0, top: 0, width: 1, height: 1 };
const share = (of: number): Partial<ResultHeader> => ({
  ...{ inputWidth: 1, inputHeight: 1 },
  subject: Subject.create({ inputBox: box, resultBox: box, share: of }),
});
const header = (changes: Partial<ResultHeader>) =>
  flooding(exchange => {
    exchange.announce(LONG, changes);
    exchange.send(LONG);
    exchange.done(LONG_SHA256);
  });
const inferMs = (ms: number) =>
  flooding(exchange => {
    exchange.announce(LONG);
    exchange.send(LONG);
    exchange.done(LONG_SHA256, undefined, { inferMs: ms });
  });

const excessive: Record<string, readonly [script: Script, withMatte?: true]> = {
  'chunks without a byte': [repeated({ $case: 'chunk', value: empty }, sendsAll)],
  'chunks of one byte': [repeated({ $case: 'chunk', value: one }, () => undefined)],
  'matte chunks without a byte': [
    repeated({ $case: 'matteChunk', value: empty }, matteAndAll),
    true,
  ],
  'stages without end': [repeated({ $case: 'progress', value: stage }, sendsAll)],
  'messages of a newer protocol without end': [repeated(undefined, sendsAll)],
  'no width': [header({ width: 0 })],
  'a height above every bound': [header({ height: 10_001 })],
  'a share that is no number': [header(share(Number.NaN))],
  'an infinite share': [header(share(Number.POSITIVE_INFINITY))],
  'a share above 1': [header(share(1.1))],
  'a time that is no number': [inferMs(Number.NaN)],
  'an infinite time': [inferMs(Number.POSITIVE_INFINITY)],
  'a time below 0': [inferMs(-1)],
};
for (const [what, [script, matte = false]] of Object.entries(excessive)) {
  test(`a result › with ${what} is the node's fault`, async t => {
    node.script = script;
    const outcome = await client.matte(callOf(INPUT, { matte }));
    assert.ok(outcome.kind === 'node-fault', JSON.stringify(outcome));
    t.regex(outcome.error.message, /broke the protocol/);
  });
}

test('a result › with a word of a newer protocol and every stage is taken', async t => {
  node.script = flooding(exchange => {
    for (const known of [1, 2, 3, 4] as Stage[])
      exchange.write({ $case: 'progress', value: { stage: known } });
    exchange.write(undefined);
    exchange.announce(LONG, share(1));
    exchange.send(LONG);
    exchange.done(LONG_SHA256);
  });
  t.is((await client.matte(callOf(INPUT))).kind, 'done');
});
