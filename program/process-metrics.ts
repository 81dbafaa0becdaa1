import { collectDefaultMetrics, type Registry } from '@prometheus-io/client';

/** The event loop's measured lag includes this interval, and each sample wakes the process. */
const EVENT_LOOP_PRECISION_MS = 250;
/** The lag shows the same, and these update ten times a second. */
const LEFT_OUT = ['nodejs_eventloop_utilization_summary', 'nodejs_eventloop_utilization_histogram'];
/** The longest delay that a timer accepts. */
const NEVER_MS = 2 ** 31 - 1;

export function collectProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({
    register: registry,
    eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS,
    eventLoopUtilizationTimeout: NEVER_MS,
  });
  for (const name of LEFT_OUT) registry.removeSingleMetric(name);
}
