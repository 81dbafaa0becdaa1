/**
 * Trust in a node by the outcomes of its attempts, after the outlier detection of Envoy and gRPC
 * (gRFC A50), but without its minimum of five hosts.
 *
 * | state   | entered                          | gets                       | left                |
 * |---------|----------------------------------|----------------------------|---------------------|
 * | new     | the node boots, or its ejection  | one image for each engine  | proven: after       |
 * |         | ends                             | at once (slow start)       | PROVEN_SUCCESSES    |
 * | proven  | PROVEN_SUCCESSES images are done | all that it admits         | ejected             |
 * | ejected | FAULTS_IN_A_ROW_MAX faults, or   | nothing                    | new: after the time |
 * |         | half of a window's outcomes      |                            | of the ejection     |
 *
 * The n-th ejection lasts n x EJECTION_MS, at most EJECTION_MS_MAX.
 */

const PROVEN_SUCCESSES = 5;
const FAULTS_IN_A_ROW_MAX = 5;
/** A node is ejected by the share of faults in this window, once it has enough outcomes. */
const WINDOW_MS = 30_000;
const WINDOW_OUTCOMES_MIN = 10;
const WINDOW_FAULTS_SHARE = 0.5;
const EJECTION_MS = 30_000;
const EJECTION_MS_MAX = 300_000;
/** Time without an ejection after which earlier ones are forgotten. */
const EJECTIONS_FORGOTTEN_MS = 600_000;

export interface NodeTrust {
  /** Since the boot or the last ejection, at most PROVEN_SUCCESSES. */
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

/** fault: the node lost the attempt, broke the protocol or did not answer. */
export function judged(trust: NodeTrust, outcome: 'well' | 'fault', nowMs: number): NodeTrust {
  // An image that began before the ejection does not count again.
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
