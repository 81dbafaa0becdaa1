/** What the log says of answers on the operator's port. */
import { once } from 'node:events';
import { createServer } from 'node:http';
import { type AddressInfo, connect } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import ava from 'ava';
import type { FastifyInstance } from 'fastify';
import { useStores } from '../../store/fixtures.ts';
import { linesLogger } from '../../support/raw-http.ts';
import { AUTHORIZED, appOn, KEY, listen, register } from './operator-port.ts';

const test = ava.serial;

interface Line {
  readonly msg: string;
  readonly route?: string;
  readonly status?: number;
  readonly left?: boolean;
}

const { stores } = useStores(test);
const { lines, logger } = linesLogger<Line>();
const asked = Promise.withResolvers<void>();
/** A node that does not answer. */
const node = createServer(() => asked.resolve());
let app: FastifyInstance;
let port: number;

test.before(async () => {
  app = appOn(stores, { logger });
  port = await listen(app);
  node.listen(0, '127.0.0.1');
  await once(node, 'listening');
  await register(stores, 'n', `127.0.0.1:${(node.address() as AddressInfo).port}`);
});
test.after.always(async () => {
  await app.close();
  node.closeAllConnections();
  await new Promise(resolve => node.close(resolve));
});

const answers = () => lines.filter(({ msg }) => msg === 'answered the operator');

test('has a line of each answer, of one that is refused before its route too, of no scrape', async t => {
  const base = `http://127.0.0.1:${port}`;
  await fetch(`${base}/metrics`);
  await fetch(`${base}/operator/nodes`, { headers: AUTHORIZED });
  await fetch(`${base}/operator/nodes`);
  const noHost = connect(port, '127.0.0.1').resume();
  noHost.write('GET /operator/nodes HTTP/1.1\r\nConnection: close\r\n\r\n');
  await once(noHost, 'close');
  t.deepEqual(
    answers().map(({ route, status, left }) => [route, status, left]),
    [
      ['/operator/nodes', 200, undefined],
      ['/operator/nodes', 401, undefined],
      ['/operator/nodes', 400, undefined],
    ],
  );
});

test('has one of a caller who leaves', async t => {
  lines.length = 0;
  const caller = connect(port, '127.0.0.1');
  const lead = `Host: x\r\nAuthorization: Bearer ${KEY}\r\n\r\n`;
  caller.write(`GET /operator/nodes/n/info HTTP/1.1\r\n${lead}`);
  await asked.promise;
  caller.destroy();
  while (answers().length === 0) await delay(10);
  await delay(50);
  t.deepEqual(
    answers().map(({ status, left }) => [status, left]),
    [[499, true]],
  );
});
