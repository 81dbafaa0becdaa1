/** The page about traces: a collector that refuses, one that is away, one that is slow. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { type Behaviour, FakeCollector } from '../support/fake-collector.ts';
import { type Env, Installation } from './installation.ts';
import { type Procedure, proceduresOn } from './procedures.ts';

const test = ava.serial;

const TOKEN = 'a-token-of-the-collector';
const LINE = 'the collector took no traces';

const answer = (status: number): Behaviour => {
  return (_request, response) => void response.writeHead(status).end('{}');
};
/** Without the token a collector like many answers so. */
const guarded: Behaviour = (request, response) => {
  const known = request.headers.authorization === `Bearer ${TOKEN}`;
  answer(known ? 200 : 401)(request, response);
};
const silent: Behaviour = () => undefined;

const service = new Installation();
const procedure = proceduresOn(service, test);
const collectors: FakeCollector[] = [];
const programs = () => [...service.planes, ...service.nodes];
const runJob = () => service.cutOut();

async function openCollector(behaviour: Behaviour): Promise<FakeCollector> {
  const collector = await FakeCollector.open();
  collectors.push(collector);
  collector.behaviour = behaviour;
  return collector;
}

async function restart(env: Env): Promise<void> {
  for (const program of programs()) await program.stop();
  for (const program of programs()) program.start(env);
  await service.ready();
}

/** Spans of both programs have this end. */
async function untilOutcome(page: Procedure, outcome: string): Promise<void> {
  const names = page.codeOf(/^matting_\w+_spans_total$/);
  assert.equal(names.length, 2);
  for (const name of names) {
    await service.until(`${name} has ${outcome}`, async () => {
      const samples = await page.query(`sum by (outcome) (increase(${name}[10m])) > 0`);
      return samples.some(({ metric }) => metric.outcome === outcome);
    });
  }
}

service.use(test);
test.after.always(async () => {
  for (const collector of collectors) collector.close();
});

procedure('MattingSpansLost', async (page, t) => {
  const refusing = await openCollector(guarded);
  const endpoint = { OTEL_EXPORTER_OTLP_ENDPOINT: refusing.endpoint };
  const soon = { OTEL_BSP_SCHEDULE_DELAY: '200' };
  await restart({ ...endpoint, ...soon });
  await page.fires(runJob);
  for (const program of programs()) await program.line(LINE, { code: '401' });
  await untilOutcome(page, 'failed');
  const token = { OTEL_EXPORTER_OTLP_HEADERS: `authorization=Bearer%20${TOKEN}` };
  await restart({ ...endpoint, ...soon, ...token });
  await runJob();
  await page.isOver();
  await untilOutcome(page, 'exported');
  refusing.close();
  await page.fires(runJob);
  for (const program of programs()) await program.line(LINE, { code: 'ECONNREFUSED' });
  const { endpoint: taking } = await openCollector(answer(200));
  await restart({ ...soon, OTEL_EXPORTER_OTLP_ENDPOINT: taking });
  await runJob();
  await page.isOver();
  const { endpoint: slow } = await openCollector(silent);
  const full = { OTEL_EXPORTER_OTLP_ENDPOINT: slow, OTEL_BSP_MAX_QUEUE_SIZE: '2' };
  await restart(full);
  await page.fires(runJob);
  await untilOutcome(page, 'dropped');
  const [sampler = ''] = page.codeOf(/^OTEL_TRACES_SAMPLER=/);
  t.deepEqual(page.codeOf(/^OTEL_TRACES_SAMPLER_ARG$/), ['OTEL_TRACES_SAMPLER_ARG']);
  const [name = '', ratio = ''] = sampler.split('=');
  await restart({ ...full, [name]: ratio, OTEL_TRACES_SAMPLER_ARG: '0' });
  await runJob();
  await page.isOver();
});
