/**
 * How far a node is trusted by what became of its attempts.
 *
 * | state   | entered                         | does                       | left                  |
 * |---------|---------------------------------|----------------------------|-----------------------|
 * | new     | a boot; an ejection's end       | one image an engine at     | PROVEN_SUCCESSES      |
 * |         |                                 | once (slow start)          | images done: proven   |
 * | proven  | PROVEN_SUCCESSES images done    | all that it admits         | ejected               |
 * | ejected | FAULTS_IN_A_ROW_MAX faults, or  | nothing                    | after EJECTION_MS     |
 * |         | half of a window's outcomes     |                            | times its ejections,  |
 * |         |                                 |                            | EJECTION_MS_MAX: new  |
 *
 * After the outlier detection of Envoy and gRPC (gRFC A50), without its floor of five hosts.
 */

/** Images a node must finish before it gets more than its engines work on. */
const PROVEN_SUCCESSES = 5;
const FAULTS_IN_A_ROW_MAX = 5;
/** Outcomes are judged by halves over this long, once there are as many as the minimum. */
const WINDOW_MS = 30_000;
const WINDOW_OUTCOMES_MIN = 10;
const WINDOW_FAULTS_SHARE = 0.5;
const EJECTION_MS = 30_000;
const EJECTION_MS_MAX = 300_000;
/** Ejections before this long a good time are forgotten. */
const EJECTIONS_FORGOTTEN_MS = 600_000;

export interface NodeTrust {
  /** Since the boot or the last ejection; PROVEN_SUCCESSES at most. */
  readonly successes: number;
  readonly faultsInARow: number;
  readonly windowStartMs: number;
  readonly windowOutcomes: number;
  readonly windowFaults: number;
  readonly ejections: number;
  readonly ejectedUntilMs: number;
}

export const NEW_NODE: NodeTrust = Object.freeze({
  successes: 0,
  faultsInARow: 0,
  windowStartMs: 0,
  windowOutcomes: 0,
  windowFaults: 0,
  ejections: 0,
  ejectedUntilMs: 0,
});

/** well: the node did its part. fault: it lost the attempt, broke the protocol, did not answer. */
export function judged(trust: NodeTrust, outcome: 'well' | 'fault', nowMs: number): NodeTrust {
  // An image that began before an ejection ends under it, and is part of its reason.
  if (nowMs < trust.ejectedUntilMs) return trust;
  const counted = inWindow(trust, nowMs);
  if (outcome === 'well') {
    return {
      ...counted,
      successes: Math.min(PROVEN_SUCCESSES, trust.successes + 1),
      faultsInARow: 0,
    };
  }
  const faultsInARow = trust.faultsInARow + 1;
  const windowFaults = counted.windowFaults + 1;
  const halfFailed =
    counted.windowOutcomes >= WINDOW_OUTCOMES_MIN &&
    windowFaults >= WINDOW_FAULTS_SHARE * counted.windowOutcomes;
  if (faultsInARow >= FAULTS_IN_A_ROW_MAX || halfFailed) return ejected(trust, nowMs);
  return { ...counted, faultsInARow, windowFaults };
}

export function isProven(trust: NodeTrust): boolean {
  return trust.successes >= PROVEN_SUCCESSES;
}

function inWindow(trust: NodeTrust, nowMs: number): NodeTrust {
  if (trust.windowOutcomes > 0 && nowMs - trust.windowStartMs < WINDOW_MS) {
    return { ...trust, windowOutcomes: trust.windowOutcomes + 1 };
  }
  return { ...trust, windowStartMs: nowMs, windowOutcomes: 1, windowFaults: 0 };
}

function ejected(trust: NodeTrust, nowMs: number): NodeTrust {
  const longAgo = nowMs - trust.ejectedUntilMs > EJECTIONS_FORGOTTEN_MS;
  const ejections = (longAgo ? 0 : trust.ejections) + 1;
  const lengthMs = Math.min(EJECTION_MS_MAX, EJECTION_MS * ejections);
  return { ...NEW_NODE, ejections, ejectedUntilMs: nowMs + lengthMs };
}
