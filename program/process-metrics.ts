/** Node's metrics of its own process: memory, descriptors, event loop, collections of garbage. */
import { collectDefaultMetrics, type Registry } from '@prometheus-io/client';

/** Resolution of the event loop's lag, whose gauges include it: the process wakes as often. */
const EVENT_LOOP_PRECISION_MS = 250;
/** The lag tells the same; each would be filled ten times a second. */
const LEFT_OUT = ['nodejs_eventloop_utilization_summary', 'nodejs_eventloop_utilization_histogram'];
/** The longest that a timer takes. */
const NEVER_MS = 2 ** 31 - 1;

export function collectProcessMetrics(registry: Registry): void {
  collectDefaultMetrics({
    register: registry,
    eventLoopMonitoringPrecision: EVENT_LOOP_PRECISION_MS,
    eventLoopUtilizationTimeout: NEVER_MS,
  });
  for (const name of LEFT_OUT) registry.removeSingleMetric(name);
}
