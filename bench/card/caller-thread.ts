/** A thread of callers: load.ts starts it, tells it when to begin to count and when to end. */
import { createHash } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';
import { openNodeCaller } from '../node-caller.ts';
import { describeError } from './describe-error.ts';
import type { KeptAnswer, LoadOptions, ThreadReport } from './load.ts';
import { openRestCaller } from './rest-caller.ts';

/** What fails at once would else be asked thousands of times a second. */
const PAUSE_AFTER_FAILURE_MS = 100;
const KEPT_MAX = 200;
/** What is under way at the end: then it counts as lost. */
const UNDER_WAY_MAX_MS = 60_000;

const { target, photo: given, format, callers, keepAnswers } = workerData as LoadOptions;
// A buffer arrives as plain bytes.
const photo = { ...given, file: Buffer.from(given.file) };
const latenciesMs: number[] = [];
const failures = new Map<string, number>();
const answers = new Map<string, KeptAnswer>();
let answered = 0;
let answeredLater = 0;
let underWay = 0;
let ending = false;
let counting = false;
let idle = performance.eventLoopUtilization();

const { cutOut, close } = openCaller();

function openCaller(): { cutOut: () => Promise<void>; close: () => void } {
  if (target.kind === 'grpc') {
    const node = openNodeCaller(target.address, target.token);
    const cutOut = async () => {
      await node.cutOut(photo, format);
    };
    return { cutOut, close: node.close };
  }
  const rest = openRestCaller(target.origin, target.apiKey);
  const cutOut = async () => {
    const { file, later } = await rest.cutOut(photo, format);
    if (later) answeredLater += 1;
    if (keepAnswers) keep(file);
  };
  return { cutOut, close: rest.close };
}

function keep(file: Buffer): void {
  const digest = createHash('sha256').update(file).digest('hex');
  const kept = answers.get(digest);
  // Beyond so many the digests say enough: they are counted as one that nobody looks at.
  if (kept === undefined && answers.size >= KEPT_MAX) return;
  answers.set(digest, { count: (kept?.count ?? 0) + 1, file: kept?.file ?? file });
}

async function call(): Promise<void> {
  while (!ending) {
    const fromMs = performance.now();
    underWay += 1;
    try {
      await cutOut();
      answered += 1;
      if (counting) latenciesMs.push(performance.now() - fromMs);
    } catch (error) {
      const message = describeError(error);
      failures.set(message, (failures.get(message) ?? 0) + 1);
      await delay(PAUSE_AFTER_FAILURE_MS);
    } finally {
      underWay -= 1;
    }
  }
}

const calls = Promise.all(Array.from({ length: callers }, call));
parentPort?.on('message', async (word: 'begin' | 'end') => {
  if (word === 'begin') {
    counting = true;
    idle = performance.eventLoopUtilization();
    return;
  }
  ending = true;
  counting = false;
  const busy = performance.eventLoopUtilization(idle).utilization;
  await Promise.race([calls, delay(UNDER_WAY_MAX_MS)]);
  if (underWay > 0) failures.set(`no answer ${UNDER_WAY_MAX_MS / 1000} s after the end`, underWay);
  close();
  const report: ThreadReport = {
    ...{ latenciesMs, answered, answeredLater, failures, answers, busy },
  };
  parentPort?.postMessage(report);
});
