/** Callers who are on their way when the public port closes are answered, not reset. */
import { once } from 'node:events';
import { syncBuiltinESMExports } from 'node:module';
import net from 'node:net';
import timers from 'node:timers/promises';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { openTestApp, type TestApp } from '../../support/test-app.ts';

const test = ava.serial;

const REQUEST = 'GET /livez HTTP/1.1\r\nHost: x\r\n\r\n';
/** More than Node takes in one turn of its loop. */
const CALLERS = 30;

let app: TestApp;
let port: number;

test.beforeEach(async () => {
  app = await openTestApp();
  port = await app.listen();
});
test.afterEach.always(() => app.close());

class Caller {
  readonly socket: net.Socket;
  /** What was received until the connection ended, or the error it ended with. */
  readonly end: Promise<string>;

  constructor() {
    this.socket = net.connect(port, '127.0.0.1');
    this.end = new Promise(resolve => {
      let received = '';
      this.socket.on('data', chunk => {
        received += String(chunk);
      });
      this.socket.once('error', error => resolve(String(error)));
      this.socket.once('close', () => resolve(received));
    });
  }

  async answered(t: ExecutionContext): Promise<void> {
    t.regex(await this.end, /^HTTP\/1\.1 200 .*\r\nconnection: close\r\n/is);
  }
}

/** As drain.ts does it. */
function close(): Promise<void> {
  app.setReadiness({ ready: false, causes: ['draining'] });
  return app.app.close();
}

test('those whom the system has accepted and Node has not taken yet', async t => {
  const callers = Array.from({ length: CALLERS }, () => new Caller());
  for (const { socket } of callers) socket.write(REQUEST);
  const closed = close();
  await Promise.all(callers.map(caller => caller.answered(t)));
  await closed;
});

test('a connected caller whose request is still on its way is answered', async t => {
  const callers = Array.from({ length: CALLERS }, () => new Caller());
  await Promise.all(callers.map(({ socket }) => once(socket, 'connect')));
  const kept = new Caller();
  kept.socket.write(REQUEST);
  await once(kept.socket, 'data');
  const closed = close();
  while (app.app.server.listening) await new Promise(setImmediate);
  t.regex(await new Caller().end, /ECONNREFUSED/);
  for (const { socket } of [...callers, kept]) socket.write(REQUEST);
  await Promise.all(callers.map(caller => caller.answered(t)));
  await closed;
  t.is((await kept.end).match(/HTTP\/1\.1 200 /g)?.length, 2);
});

test('a connection without a request is closed', async t => {
  const idle = new Caller();
  await once(idle.socket, 'connect');
  await close();
  t.is(await idle.end, '');
});

test('a server whose connections are cut does not wait', async t => {
  const never = sinon.stub(timers, 'setTimeout').returns(new Promise<never>(() => undefined));
  syncBuiltinESMExports();
  t.teardown(() => {
    never.restore();
    syncBuiltinESMExports();
  });
  const idle = new Caller();
  await once(idle.socket, 'connect');
  const closed = close();
  while (app.app.server.listening) await new Promise(setImmediate);
  app.app.server.closeAllConnections();
  await closed;
  t.is(await idle.end, '');
  t.true(never.called, 'nothing was waited for');
});
