/** Two control planes and two nodes, on MariaDB. */
import { rename } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import ava, { type ExecutionContext } from 'ava';
import { at } from '../support/at.ts';
import { Installation, OPERATOR_KEY, pictureBase64 } from './installation.ts';
import { type Procedure, proceduresOn } from './procedures.ts';

const test = ava.serial;

const CONFIG_EXIT_CODE = 78;
/** Too long for a synchronous picture, too short for a silent node. */
const SLOW_MS = 11_500;

const service = new Installation();
const procedure = proceduresOn(service, test);
service.use(test, {
  planes: 2,
  nodes: 2,
  env: { MATTING_NO_NODE_GRACE_MS: '1000' },
});

/** As the alert's page distinguishes them. */
const causes = (labels: readonly Readonly<Record<string, string>>[]) => [
  ...new Set(labels.map(({ cause }) => cause)),
];

procedure('MattingProgramDown', async (page, t) => {
  const node = at(service.nodes, 1);
  node.signal('SIGKILL');
  t.is(await node.exited, 137);
  const [firing] = await page.fires();
  t.is(firing?.job, 'matting-node');
  node.start({ MATTING_ENGINES: 'many' });
  t.is(await node.exited, CONFIG_EXIT_CODE);
  t.regex(node.complaint, /MATTING_ENGINES/);
  node.start();
  await page.isOver();
  await service.ready();
  const { out } = await page.run('matting nodes list');
  t.regex(out, /^node-1 +live /m);
});

procedure('MattingUnready', async (page, t) => {
  const [plane, other] = [at(service.planes, 0), at(service.planes, 1)];
  const { server } = service.database;
  await server.kill();
  t.deepEqual(causes(await page.fires()), ['database']);
  await plane.line('not ready', { cause: 'database' });
  await server.start();
  await page.isOver();
  // A demoted server, to which the service's user cannot write.
  await service.database.ask('set global read_only = 1');
  t.deepEqual(causes(await page.fires()), ['database']);
  const drained = await service.run('matting nodes drain node-0');
  t.not(drained.code, 0);
  t.regex(drained.err, /read-only/);
  await service.database.ask('set global read_only = 0');
  await page.isOver();
  await rename(service.storage, `${service.storage}-gone`);
  t.deepEqual(causes(await page.fires()), ['storage']);
  await rename(`${service.storage}-gone`, service.storage);
  await page.run('matting storage check');
  await page.isOver();
  for (const node of service.nodes) await node.stop();
  await other.restart();
  t.deepEqual(causes(await page.fires()), ['no-node-yet']);
  for (const node of service.nodes) node.start();
  await page.isOver();
  await service.ready();
});

procedure('MattingNodesUnroutable', async (page, t) => {
  await service.matting('nodes drain node-0');
  await page.fires();
  const { out } = await page.run('matting nodes list --json');
  t.regex(out, /"node_id":"node-0","state":"draining"/);
  const asked = at(page.codeOf(/^GET \/operator/), 0).replace('GET ', '');
  const place = asked.replace('<id>', 'node-0');
  await service.until('the node says that it drains', async () => {
    const answer = await fetch(`${at(service.planes, 0).metricsUrl}${place}`, {
      headers: { authorization: `Bearer ${OPERATOR_KEY}` },
    });
    return answer.status === 503 && (await answer.text()).includes('draining');
  });
  await page.run('matting nodes undrain <id>', { id: 'node-0' });
  await page.isOver();
  await service.ready();
});

procedure('MattingNodesRefused', async (page, t) => {
  const node = at(service.nodes, 1);
  await node.restart({ MATTING_NODE_TOKEN: 'a-token-of-another-fleet' });
  const [firing] = await page.fires();
  t.is(firing?.cause, 'token');
  const { line } = { line: await at(service.planes, 0).line('a node was refused') };
  t.is(line.cause, 'token');
  await node.restart();
  await page.isOver();
  await service.ready();
});

procedure('MattingNoNode', async (page, t) => {
  for (const node of service.nodes) await node.kill();
  await page.fires();
  await service.until('node-0 is silent', async () => {
    const { out } = await page.run('matting nodes list');
    return /^node-0 +silent /m.test(out);
  });
  const { out } = await page.run('matting doctor', {}, { code: 1 });
  t.regex(out, /^failure +nodes +none takes images: node-0/m);
  await service.matting('nodes drain node-0');
  for (const node of service.nodes) node.start();
  await page.run('matting nodes undrain <id>', { id: 'node-0' });
  await page.isOver();
  await service.ready();
  for (const plane of service.planes) await plane.stop();
  await at(service.nodes, 0).line('no control plane answers; trying on');
  for (const plane of service.planes) plane.start();
  await service.ready();
});

async function refuseRequests(page: Procedure, t: ExecutionContext): Promise<void> {
  for (const node of service.nodes) await node.kill();
  const image_base64 = await pictureBase64();
  await page.fires(() => service.post({ image_base64 }));
  const codes = await page.query(at(page.codeOf(/^sum by \(code\)/), 0));
  t.truthy(
    codes.some(({ metric }) => metric.code === 'SERVICE_UNAVAILABLE'),
    JSON.stringify(codes),
  );
  for (const node of service.nodes) node.start();
  await service.ready();
  await page.isOver();
}

procedure('MattingErrorBudgetFast', refuseRequests);

procedure('MattingErrorBudgetSlow', refuseRequests);

procedure('MattingResultsSlow', async (page, t) => {
  const image_base64 = await pictureBase64();
  await page.fires(async () => {
    for (const node of service.nodes) node.signal('SIGSTOP');
    const post = () => service.post({ image_base64 }, { path: '/v1/matting' });
    const pictures = Array.from({ length: 8 }, post);
    await delay(SLOW_MS);
    for (const node of service.nodes) node.signal('SIGCONT');
    await Promise.all(pictures);
  });
  const [waited] = await page.query(at(page.codeOf(/^histogram_quantile/), 0));
  t.true(Number(waited?.value[1]) > 5);
  await page.isOver();
});

procedure('MattingInternalErrors', async (page, t) => {
  const image_base64 = await pictureBase64();
  await service.database.ask('alter table matting.api_keys rename column secret_hash to hash_away');
  for (const plane of service.planes) {
    await plane.restart();
  }
  await page.fires(async () => {
    const { status } = await service.post({ image_base64 });
    t.is(status, 500);
  });
  const { level, reqId } = await at(service.planes, 0).line(/^Something went wrong on our side/);
  t.deepEqual([level, typeof reqId], [50, 'string']);
  await service.database.ask('alter table matting.api_keys rename column hash_away to secret_hash');
  await page.run('matting nodes list --json');
  await page.isOver();
});
