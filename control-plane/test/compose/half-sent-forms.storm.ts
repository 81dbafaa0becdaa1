/**
 * 10,000 connections on the public port whose forms are never sent, 200 on the operator's, and
 * silent ones at a process with few files: every good call is answered. Needs: portal.
 */
import net from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { submitTo } from '@matting/core/test/support/replicas.ts';
import { startMain } from '@matting/core/test/support/started-main.ts';
import { imageBody } from '@matting/core/test/support/test-app.ts';
import { openFilesMax } from '@matting/program/ports/listening.ts';
import { HalfSentForms } from '@matting/test-support/half-sent-forms.ts';
import ava from 'ava';
import { openCaller } from '../fixtures.ts';

const test = ava.serial;

const CONNECTIONS = 10_000;
const STORM_MS = 20_000;
const OPERATOR_KEY = 'an-operator-key-that-only-a-test-knows';
const FORM = 'Content-Type: application/x-www-form-urlencoded';
/** The pause between two calls keeps the machine from being only busy with them. */
const PAUSE_MS = 50;
/** An answer takes milliseconds; one that does not come ends the storm. */
const ANSWER_MS_MAX = 20_000;

const FILES_MAX = 256;
/** Silent ones, more than there may be files. */
const STRANGERS = 400;

const filesMax = openFilesMax() ?? Number.POSITIVE_INFINITY;
const skip = filesMax < 1.1 * CONNECTIONS && `only ${filesMax} files may be open`;

function heads(origin: string): string[][] {
  const form = (path: string) => [
    `POST ${path} HTTP/1.1`,
    'Host: x',
    `Origin: ${origin}`,
    `Cookie: __Host-matting-visitor=${'a'.repeat(43)}`,
    FORM,
    'Content-Length: 8000',
  ];
  return [
    form('/account/sign-in'),
    form(`/account/links/${'a'.repeat(43)}`),
    ['POST /v1/matting HTTP/1.1', 'Host: x', 'Content-Length: 30000000'],
  ];
}

for (const networks of [1, 20_000]) {
  test.skipIf(skip !== false)(`forms from ${networks} networks keep nobody out`, async t => {
    const origin = 'http://127.0.0.1';
    const main = await startMain({
      MATTING_OPERATOR_KEY: OPERATOR_KEY,
      MATTING_JOBS_IN_FLIGHT_MAX: '1000000',
      MATTING_QUEUE_MEGAPIXELS_MAX: '1000000',
      MATTING_NODES_ON_DEMAND: 'true',
    });
    const floods: HalfSentForms[] = [];
    try {
      type Ports = { http: number; metrics: number };
      const { http: port, metrics } = await main.line<Ports>('listening');
      const token = await openCaller(main.databaseUrl, 1_000_000);
      const own = `http://127.0.0.1:${metrics}`;
      const ofOperator = ['POST /operator/sign-in HTTP/1.1', `Host: 127.0.0.1:${metrics}`];
      const operator = [...ofOperator, `Origin: ${own}`, FORM, 'Content-Length: 8000'];
      floods.push(
        new HalfSentForms({ port, heads: heads(origin), connections: CONNECTIONS, networks }),
        new HalfSentForms({ port: metrics, heads: [operator], connections: 200, networks }),
      );
      for (const flood of floods) flood.start();
      while (floods.some(({ began }) => began < 200)) await delay(10);
      const answers: number[] = [];
      const untilMs = performance.now() + STORM_MS;
      while (performance.now() < untilMs) {
        const signal = AbortSignal.timeout(ANSWER_MS_MAX);
        const sent = { headers: { connection: 'close' }, signal };
        const submitted = await submitTo(`${origin}:${port}`, token, imageBody(), sent);
        await submitted.arrayBuffer();
        const scraped = await fetch(`${own}/metrics`, sent);
        await scraped.arrayBuffer();
        answers.push(submitted.status, scraped.status);
        await delay(PAUSE_MS);
      }
      t.deepEqual(new Set(answers), new Set([202, 200]));
      // More than may be on their way on either port: some had to make room.
      for (const { began, ended } of floods) t.true(ended > 0, `${began} began`);
    } finally {
      for (const flood of floods) flood.stop();
      await main.stop();
    }
  });
}

test.runIf(process.platform === 'linux')(
  'few open files are said, and silent connections close it to nobody',
  async t => {
    const main = await startMain({}, FILES_MAX);
    const strangers: net.Socket[] = [];
    try {
      const { http: port, connectionsMax } = await main.line<{ http: number }>('listening');
      t.is(connectionsMax, FILES_MAX / 2);
      const few = await main.line('few files may be open');
      t.deepEqual([few.connectionsMax, few.openFilesMax], [FILES_MAX / 2, FILES_MAX]);
      for (let count = 0; count < STRANGERS; count += 1) {
        strangers.push(net.connect(port, '127.0.0.1').on('error', () => undefined));
      }
      // The first connections made room for the last.
      while (strangers.some(({ connecting }) => connecting)) await delay(10);
      for (let count = 0; count < 24; count += 1) {
        const headers = { connection: 'close' };
        const answer = await fetch(`http://127.0.0.1:${port}/livez`, { headers });
        t.is(answer.status, 200);
      }
    } finally {
      for (const socket of strangers) socket.destroy();
      await main.stop();
    }
  },
);
