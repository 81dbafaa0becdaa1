import assert from 'node:assert/strict';
import { Duplex } from 'node:stream';
import { it } from 'node:test';
import { DirectFiles } from '../../src/direct/direct-files.ts';
import { EXCHANGE_BOUNDS, type MatteCall, MatteExchange } from '../../src/grpc/matte-exchange.ts';
import type { MatteOrder } from '../../src/grpc/matte-header.ts';
import { chunk } from './test-node.ts';

const CHUNKS = 5000;
/** The exchange's own rule, and half of it for the test's first and last turns. */
const MESSAGES_A_TURN_MAX = 64;

it('a flood of tiny chunks leaves turns of the event loop to the others', async () => {
  let left = CHUNKS;
  const call = new Duplex({
    objectMode: true,
    // Everything lies ready, as what came in one piece over the network does.
    read() {
      this.push(left-- > 0 ? chunk('x') : null);
    },
    write: (_message, _encoding, done) => done(),
  });
  const direct = new DirectFiles([]);
  const exchange = new MatteExchange(call as unknown as MatteCall, EXCHANGE_BOUNDS, direct);
  const order = { contentLength: CHUNKS, sha256: undefined } as MatteOrder;
  let turns = 0;
  let counting = true;
  const count = () => {
    turns += 1;
    if (counting) setImmediate(count);
  };
  setImmediate(count);
  const { image: file } = await exchange.forOrder(order).receive(new AbortController().signal);
  counting = false;
  assert.equal(file.length, CHUNKS);
  assert.ok(turns >= CHUNKS / MESSAGES_A_TURN_MAX / 2, `${turns} turns for ${CHUNKS} chunks`);
});
