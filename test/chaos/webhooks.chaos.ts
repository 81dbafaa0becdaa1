/** `make chaos`: a thousand notifications, twenty kills. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { assertWeathered, inWords, medianOf, runWebhookStorm } from './webhook-storm.ts';

const OPTIONS = { events: 1000, kills: 20 };
/** What the service promises of a receiver that answers, whatever the others do. */
const HEALTHY_MEDIAN_MS_MAX = 1000;

test('a thousand notifications through twenty kills', async t => {
  const report = await runWebhookStorm(OPTIONS);
  t.diagnostic(inWords(report));
  assertWeathered(report, OPTIONS);
  assert.ok(medianOf(report.healthyDelaysMs) < HEALTHY_MEDIAN_MS_MAX);
});
