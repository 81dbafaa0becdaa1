/**
 * A thread of callers, each of which sends a photo over REST again as soon as it is answered.
 * service-load.ts starts it, and says when it begins to count and when it ends.
 */
import { randomUUID } from 'node:crypto';
import { Agent, type IncomingMessage, request } from 'node:http';
import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { parentPort, workerData } from 'node:worker_threads';

export interface CallerOptions {
  readonly origin: string;
  readonly apiKey: string;
  readonly file: Uint8Array;
  readonly type: string;
  readonly format: string;
  readonly callers: number;
}

export interface CallerReport {
  /** The latencies of answers within the window. */
  readonly latenciesMs: readonly number[];
  /** The number is of all calls, within the window or not. */
  readonly failed: number;
  readonly failure: string | undefined;
  /** Share of the window that its event loop had work. */
  readonly busy: number;
}

/** A call that fails at once would else be repeated thousands of times a second. */
const PAUSE_AFTER_FAILURE_MS = 100;
const WORDS_MAX = 200;

const { origin, apiKey, file, type, format, callers } = workerData as CallerOptions;
const { hostname, port } = new URL(origin);
const agent = new Agent({ keepAlive: true });
const latenciesMs: number[] = [];
let failed = 0;
let failure: string | undefined;
let counting = false;
let ending = false;

async function cutOut(): Promise<void> {
  const headers = {
    authorization: `Bearer ${apiKey}`,
    accept: `image/${format}`,
    'idempotency-key': randomUUID(),
    'content-type': `image/${type}`,
    'content-length': file.length,
  };
  const path = `/v1/matting?output_format=${format}`;
  const answer = await new Promise<IncomingMessage>((resolve, reject) => {
    request({ agent, hostname, port, path, method: 'POST', headers }, resolve)
      .on('error', reject)
      .end(file);
  });
  const body = Buffer.concat(await answer.toArray());
  if (answer.statusCode === 200) return;
  throw new Error(`${answer.statusCode} ${body.toString().slice(0, WORDS_MAX)}`);
}

async function call(): Promise<void> {
  while (!ending) {
    const fromMs = performance.now();
    try {
      await cutOut();
      if (counting) latenciesMs.push(performance.now() - fromMs);
    } catch (error) {
      failed += 1;
      failure = (error as Error).message;
      await delay(PAUSE_AFTER_FAILURE_MS);
    }
  }
}

const calls = Promise.all(Array.from({ length: callers }, call));
let idle = performance.eventLoopUtilization();
parentPort?.on('message', async (word: 'begin' | 'end') => {
  counting = word === 'begin';
  if (counting) {
    idle = performance.eventLoopUtilization();
    return;
  }
  ending = true;
  const busy = performance.eventLoopUtilization(idle).utilization;
  await calls;
  agent.destroy();
  const report: CallerReport = { latenciesMs, failed, failure, busy };
  parentPort?.postMessage(report);
});
