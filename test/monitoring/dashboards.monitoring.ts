/** Grafana itself is not run. */
import assert from 'node:assert/strict';
import ava from 'ava';
import sharp from 'sharp';
import { type LoopbackSource, openSource } from '../../control-plane/http/test/loopback-source.ts';
import { FLEET, GPU_ROW_TITLE } from '../../deploy/grafana/source/fleet.ts';
import { MONEY } from '../../deploy/grafana/source/money.ts';
import type { Page } from '../../deploy/grafana/source/panels.ts';
import { SERVICE } from '../../deploy/grafana/source/service.ts';
import { type RunningService, spawnMatting, startService } from '../running-service.ts';
import { until } from '../support/processes.ts';
import { isNotTested } from '../support/skip.ts';
import { PrometheusServer, skipWithoutPrometheus } from './prometheus-server.ts';

const test = ava.serial.skipIf(isNotTested(skipWithoutPrometheus()));

const IMAGES = 4;
const SHOWN_MS_MAX = 60_000;

/** dcgm-exporter's names; no card is watched here. */
const GPU_METRICS = [
  'DCGM_FI_DEV_GPU_UTIL',
  'DCGM_FI_DEV_FB_USED',
  'DCGM_FI_DEV_XID_ERRORS',
  'DCGM_FI_DEV_POWER_USAGE',
  'DCGM_FI_DEV_GPU_TEMP',
  'DCGM_FI_DEV_SM_CLOCK',
];

function startGpuExporter(): Promise<LoopbackSource> {
  const text = GPU_METRICS.map(name => `${name}{gpu="0",Hostname="host"} 1\n`).join('');
  return openSource((_request, response) => {
    response.setHeader('content-type', 'text/plain; version=0.0.4').end(text);
  });
}

async function load(service: RunningService): Promise<void> {
  await using receiver = await openSource((_request, response) => response.end());
  const create = { width: 64, height: 64, channels: 3, background: '#246' } as const;
  const picture = await sharp({ create }).png().toBuffer();
  const image_base64 = picture.toString('base64');
  const cut = picture.subarray(0, picture.length - 20).toString('base64');
  const jobs = '/v1/matting/jobs';
  for (let i = 0; i < IMAGES; i += 1) {
    assert.equal((await service.post({ image_base64 })).status, 200);
    const callback_secret = 'a secret of twenty-four characters';
    const body = { image_base64, callback_url: `${receiver.url}/`, callback_secret };
    const { body: job, status } = await service.post(body, { path: jobs });
    assert.equal(status, 202, JSON.stringify(job));
    assert.equal((await service.final(job.job_id)).status, 'succeeded');
  }
  assert.equal((await service.post({ image_base64: 'AAAA' })).status, 400);
  assert.equal((await service.post({ image_base64: cut })).status, 422);
}

let service: RunningService;
let gpus: LoopbackSource;
let prometheus: PrometheusServer;
let loading: Promise<void> | undefined;
let isOver = false;

ava.serial.before(async () => {
  [service, gpus] = await Promise.all([
    startService({ MATTING_ALLOW_HTTP_CALLBACKS: 'true' }),
    startGpuExporter(),
  ]);
  const checked = spawnMatting(['credits', 'check', '--full'], service.env);
  assert.equal(await checked.exited, 0, checked.output());
  prometheus = await PrometheusServer.start({
    'matting-control': [`127.0.0.1:${service.env.MATTING_METRICS_PORT}`],
    'matting-node': [`127.0.0.1:${service.env.MATTING_NODE_HTTP_PORT}`],
    dcgm: [`127.0.0.1:${gpus.port}`],
  });
  loading = (async () => {
    while (!isOver) await load(service);
  })();
  // Awaited at the end; an earlier failure must not count as unhandled.
  loading.catch(() => undefined);
});
ava.serial.after.always(async () => {
  isOver = true;
  await loading;
  await prometheus?.close();
  await gpus?.[Symbol.asyncDispose]();
  await service?.close();
});

for (const page of [SERVICE, FLEET, MONEY] satisfies Page[]) {
  for (const row of page.rows) {
    for (const { title, queries } of row.panels) {
      test(`${page.title}, ${row.title}: ${title}`, async t => {
        for (const { expr } of queries) await t.notThrowsAsync(shown(prometheus, expr));
      });
    }
  }
}

test('every rule is evaluated without an error', async t => {
  const answer = await fetch(`${prometheus.origin}/api/v1/rules`);
  const { data } = (await answer.json()) as {
    data: { groups: { rules: { name: string; health: string; lastError?: string }[] }[] };
  };
  const rules = data.groups.flatMap(group => group.rules);
  t.deepEqual(
    rules.filter(({ health }) => health !== 'ok'),
    [],
  );
  t.true(rules.length > 40);
});

test('no critical alert fires over a service that is well', async t => {
  const firing = await prometheus.query('ALERTS{alertstate="firing",severity="critical"}');
  t.deepEqual(
    firing.map(({ metric }) => metric.alertname),
    [],
  );
});

test('shows GPUs by the names of dcgm-exporter alone', t => {
  const row = FLEET.rows.find(({ title }) => title === GPU_ROW_TITLE);
  const names = row?.panels.flatMap(({ queries }) =>
    queries.map(({ expr }) => /DCGM_\w+/.exec(expr)?.[0]),
  );
  t.deepEqual(names?.toSorted(), GPU_METRICS.toSorted());
});

/** Rates need two scrapes, and quantiles an observation. */
async function shown(prometheus: PrometheusServer, expr: string): Promise<void> {
  let values: string[] = [];
  await until(
    async () => {
      values = (await prometheus.query(expr)).map(({ value: [, text] }) => text);
      return values.length > 0 && values.every(text => Number.isFinite(Number(text)));
    },
    { timeoutMs: SHOWN_MS_MAX, what: expr, detail: () => values.join(' ') },
  );
}
