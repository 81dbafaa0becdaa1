/** Through Jaeger's own API. */
import { randomBytes } from 'node:crypto';
import type { IncomingHttpHeaders } from 'node:http';
import ava from 'ava';
import sharp from 'sharp';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import { type RunningService, startService } from '../running-service.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { JaegerServer, type JaegerTrace, skipWithoutJaeger } from './jaeger-server.ts';

const test = ava.serial.skipIf(isNotTested(skipWithoutJaeger()));

const SHOWN_MS_MAX = 60_000;
const JOBS = '/v1/matting/jobs';
const SECRET = 'a callback secret of the trace';

let jaeger: JaegerServer;
let service: RunningService;
let receiver: LoopbackSource;
const delivered: IncomingHttpHeaders[] = [];

ava.serial.before(async () => {
  jaeger = await JaegerServer.start();
  receiver = await openSource((request, response) => {
    delivered.push(request.headers);
    response.end();
  });
  service = await startService({
    OTEL_EXPORTER_OTLP_ENDPOINT: jaeger.endpoint,
    OTEL_BSP_SCHEDULE_DELAY: '100',
    MATTING_ALLOW_HTTP_CALLBACKS: 'true',
  });
});
ava.serial.after.always(async () => {
  await service?.close();
  await receiver?.[Symbol.asyncDispose]();
  await jaeger?.close();
});

const traceId = randomBytes(16).toString('hex');
const callersSpanId = randomBytes(8).toString('hex');

function nodesOf({ spans, processes }: JaegerTrace) {
  const byId = new Map(spans.map(span => [span.spanID, span]));
  return spans.map(span => {
    const parentId = span.references.find(({ refType }) => refType === 'CHILD_OF')?.spanID;
    const parent = parentId === undefined ? undefined : byId.get(parentId);
    const service = processes[span.processID]?.serviceName ?? '';
    return {
      id: span.spanID,
      parentId,
      path: `${service}: ${parent?.operationName ?? '-'} > ${span.operationName}`,
    };
  });
}

test('goes from the caller of an asynchronous job to its webhook', async t => {
  const picture = await sharp({
    create: { width: 320, height: 240, channels: 3, background: '#246' },
  })
    .png()
    .toBuffer();
  const { port } = receiver;
  const body = {
    image_base64: picture.toString('base64'),
    callback_url: `http://127.0.0.1:${port}/done`,
    callback_secret: SECRET,
  };
  const headers = { traceparent: `00-${traceId}-${callersSpanId}-01` };
  const { status, body: job } = await service.post(body, { path: JOBS, headers });
  t.is(status, 202);
  t.is((await service.final(job.job_id)).status, 'succeeded');
  await until(() => delivered.length > 0, { timeoutMs: SHOWN_MS_MAX, what: 'the notification' });
  const [control, node] = ['matting-control-plane', 'matting-inference-node'];
  const matte = 'matting.v1.MatteService/Matte';
  // test/e2e/traces.test.ts compares the other spans.
  const expected = [
    `${control}: - > POST ${JOBS}`,
    `${control}: submit > notify`,
    `${control}: attempt > ${matte}`,
    `${node}: ${matte} > ${matte}`,
    `${node}: engine > infer`,
  ];
  let shown: ReturnType<typeof nodesOf> = [];
  await until(
    async () => {
      const trace = await jaeger.trace(traceId);
      shown = trace === undefined ? [] : nodesOf(trace);
      return expected.every(path => shown.some(one => one.path === path));
    },
    {
      timeoutMs: SHOWN_MS_MAX,
      what: 'Jaeger shows the whole trace',
      detail: () => `missing: ${expected.filter(path => !shown.some(one => one.path === path))}`,
    },
  );
  const request = shown.find(({ path }) => path.endsWith(`> POST ${JOBS}`));
  t.is(request?.parentId, callersSpanId);
  const notify = shown.find(({ path }) => path.endsWith('> notify'));
  t.is(delivered[0]?.traceparent, `00-${traceId}-${notify?.id}-01`);
});
