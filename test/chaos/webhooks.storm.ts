/** The small brother of webhooks.chaos.ts: the same storm, a tenth as long. */
import { test } from 'node:test';
import { assertWeathered, inWords, runWebhookStorm } from './webhook-storm.ts';

const OPTIONS = { events: 100, kills: 3 };

test('notifications survive kills, and receivers that do everything wrong', async t => {
  const report = await runWebhookStorm(OPTIONS);
  t.diagnostic(inWords(report));
  assertWeathered(report, OPTIONS);
});
