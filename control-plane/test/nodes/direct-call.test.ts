/** A call whose files go straight: what the client makes of a node that breaks its order. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import ava from 'ava';
import type { DirectTransfer } from '../../src/nodes/direct-transfer.ts';
import { NodeClient } from '../../src/nodes/node-client.ts';
import type { Exchange, Script } from './scripted-exchange.ts';
import { callOf, ScriptedNode, TEST_TOKEN } from './scripted-node.ts';

const test = ava.serial;

const RESULT = Buffer.from('a result');
const SHA256 = createHash('sha256').update(RESULT).digest();
const PLACE = { url: 'http://storage.test/r', headers: { 'if-none-match': '*' }, validMs: 1000 };

let node: ScriptedNode;
let client: NodeClient;
let asked: string[];

test.before(async () => {
  node = await ScriptedNode.start();
  client = new NodeClient(node.address, TEST_TOKEN);
});

test.after.always(async () => {
  client.close();
  await node.down();
});

test.beforeEach(() => {
  asked = [];
});

function transfer(changes: Partial<DirectTransfer> = {}): DirectTransfer {
  return {
    origin: 'http://storage.test',
    refer: async () => {
      asked.push('refer');
      return { url: 'http://storage.test/i', backgroundUrl: '' };
    },
    place: async ({ bytes, sha256 }) => {
      asked.push(`place ${bytes} ${sha256}`);
      return PLACE;
    },
    verify: async ({ width, height }) => {
      asked.push(`verify ${width}x${height}`);
      return undefined;
    },
    ...changes,
  };
}

const unused = () => Promise.reject(new Error('no byte goes through here'));

function attempt(script: Script, changes: Partial<DirectTransfer> | null = {}) {
  node.script = script;
  if (changes === null) return client.matte(callOf(Buffer.from('bytes')));
  const through = { openInput: unused, sink: { write: unused } };
  const call = callOf(Buffer.from('bytes'), { ...through, direct: transfer(changes) });
  return client.matte(call);
}

async function wellDone(exchange: Exchange): Promise<void> {
  exchange.admit();
  await exchange.references();
  await exchange.askPlace(RESULT);
  exchange.done(SHA256);
  exchange.end();
}

test('a direct call › names the origin first, references after admission, and verifies before it is done', async t => {
  let references: unknown;
  let place: unknown;
  const outcome = await attempt(async exchange => {
    t.is(exchange.header.directOrigin, 'http://storage.test');
    t.deepEqual(asked, []);
    exchange.admit();
    references = await exchange.references();
    place = await exchange.askPlace(RESULT);
    t.is(asked.length, 2);
    exchange.done(SHA256);
    exchange.end();
  });
  assert.ok(outcome.kind === 'done', JSON.stringify(outcome));
  const hex = SHA256.toString('hex');
  t.deepEqual(asked, ['refer', `place ${RESULT.length} ${hex}`, 'verify 10x10']);
  t.deepEqual(references, { url: 'http://storage.test/i', backgroundUrl: '' });
  t.deepEqual(place, PLACE);
  t.deepEqual([outcome.result.bytes, outcome.result.sha256], [RESULT.length, hex]);
});

const broken: Record<string, Script> = {
  'sends bytes': async exchange => {
    exchange.admit();
    await exchange.references();
    exchange.announce(RESULT);
    exchange.send(RESULT);
    exchange.done(SHA256);
    exchange.end();
  },
  'is done without having asked for a place': async exchange => {
    exchange.admit();
    await exchange.references();
    exchange.announce(RESULT);
    exchange.done(SHA256);
    exchange.end();
  },
  'asks for a place before it says how many bytes': async exchange => {
    exchange.admit();
    exchange.write({ $case: 'resultDigest', value: { sha256: SHA256 } });
    await exchange.cancelled;
  },
  'asks for a second place': async exchange => {
    exchange.admit();
    await exchange.references();
    await exchange.askPlace(RESULT);
    exchange.write({ $case: 'resultDigest', value: { sha256: Buffer.alloc(32) } });
    await exchange.cancelled;
  },
  'gives half a digest': async exchange => {
    exchange.admit();
    exchange.announce(RESULT);
    exchange.write({ $case: 'resultDigest', value: { sha256: Buffer.alloc(16) } });
    await exchange.cancelled;
  },
  'ends with another checksum than it asked a place for': async exchange => {
    exchange.admit();
    await exchange.references();
    await exchange.askPlace(RESULT);
    exchange.done(Buffer.alloc(32));
    exchange.end();
  },
  'ends without a word': async exchange => {
    exchange.admit();
    await exchange.references();
    await exchange.askPlace(RESULT);
    exchange.end();
  },
};
for (const [what, script] of Object.entries(broken)) {
  test(`a direct call › of a node that ${what} is the node's fault`, async t => {
    const outcome = await attempt(script);
    assert.ok(outcome.kind === 'node-fault', JSON.stringify(outcome));
    t.regex(outcome.error.message, /broke the protocol/);
  });
}

test("a direct call › whose result is not what the storage has is the node's fault", async t => {
  const outcome = await attempt(wellDone, { verify: async () => 'the storage has no result' });
  assert.ok(outcome.kind === 'node-fault');
  t.regex(outcome.error.message, /the storage has no result/);
});

for (const step of ['refer', 'place', 'verify'] as const) {
  test(`a direct call › is our own storage's fault where we cannot ${step}`, async t => {
    const down = new Error('the storage is down');
    const outcome = await attempt(wellDone, { [step]: () => Promise.reject(down) });
    t.deepEqual(outcome, { kind: 'local-fault', error: down, reading: step === 'refer' });
  });
}

test('a direct call › in which the node cannot reach the storage blames neither node nor image', async t => {
  const outcome = await attempt(async exchange => {
    exchange.admit();
    await exchange.references();
    exchange.fail('STORAGE_UNREACHABLE');
  });
  t.true(outcome.kind === 'storage-fault');
});

test('a digest in a call that is streamed breaks the protocol', async t => {
  const outcome = await attempt(async exchange => {
    exchange.admit();
    exchange.announce(RESULT);
    exchange.write({ $case: 'resultDigest', value: { sha256: SHA256 } });
    await exchange.cancelled;
  }, null);
  t.true(outcome.kind === 'node-fault', JSON.stringify(outcome));
});
