/**
 * 10,000 connections whose forms are never sent, on the public port for a minute, and 200 on the
 * operator's, each opened anew once it is closed: every call with a good key and every scrape is
 * answered meanwhile, each on a new connection.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { openFilesMax } from '#program/open-files.ts';
import { HalfSentForms } from '../../../test/support/half-sent-forms.ts';
import { openCaller } from '../store/fixtures.ts';
import { submitTo } from '../support/replicas.ts';
import { startMain } from '../support/started-main.ts';
import { imageBody } from '../support/test-app.ts';

const CONNECTIONS = 10_000;
const STORM_MS = 60_000;
const OPERATOR_KEY = 'an-operator-key-that-only-a-test-knows';
const FORM = 'Content-Type: application/x-www-form-urlencoded';
/** Between two calls, so that the machine is not only busy with them. */
const PAUSE_MS = 50;
/** An answer takes milliseconds; one that does not come ends the storm. */
const ANSWER_MS_MAX = 20_000;

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

describe('half-sent forms for a minute', { skip }, () => {
  for (const networks of [1, 20_000]) {
    it(`from ${networks} networks keep nobody out`, async () => {
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
        assert.deepEqual(new Set(answers), new Set([202, 200]));
        // More than may be on their way on either port: some had to make room.
        for (const { began, ended } of floods) assert.ok(ended > 0, `${began} began`);
      } finally {
        for (const flood of floods) flood.stop();
        await main.stop();
      }
    });
  }
});
