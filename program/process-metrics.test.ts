import { Registry } from '@prometheus-io/client';
import test from 'ava';
import { collectProcessMetrics } from './process-metrics.ts';

test('metrics of the process › have what rules and panels ask for, and no series that timers fill', async t => {
  const registry = new Registry();
  collectProcessMetrics(registry);
  const page = await registry.metrics();
  t.regex(page, /^nodejs_eventloop_lag_p99_seconds \d/m);
  t.regex(page, /^process_resident_memory_bytes \d/m);
  t.notRegex(page, /utilization/);
});
