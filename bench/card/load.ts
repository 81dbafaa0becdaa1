/**
 * As many callers as keep a service full, on threads of their own: each asks again as soon as it is
 * answered. What they take of the processor, and whether they are what limits, is measured too.
 */
import { Worker } from 'node:worker_threads';
import type { OutputFormat } from '#contract/formats.ts';
import type { BenchPhoto } from '../photos.ts';
import { percentile } from './figures.ts';

export type LoadTarget =
  | { readonly kind: 'rest'; readonly origin: string; readonly apiKey: string }
  | { readonly kind: 'grpc'; readonly address: string; readonly token: string };

export interface LoadOptions {
  readonly target: LoadTarget;
  readonly photo: BenchPhoto;
  readonly format: OutputFormat;
  /** At once, over all threads. */
  readonly callers: number;
  readonly threads: number;
  /** Keeps an example of each answer that differs from the others. */
  readonly keepAnswers?: boolean;
}

export interface KeptAnswer {
  readonly count: number;
  readonly file: Uint8Array;
}

/** What a thread says when it is told to stop. */
export interface ThreadReport {
  /** Of answers within the window. */
  readonly latenciesMs: readonly number[];
  /** Of all that was asked, from the first on. */
  readonly answered: number;
  /** Answered after the call itself had ended, by reading the job. */
  readonly answeredLater: number;
  /** How often each message was the end. */
  readonly failures: ReadonlyMap<string, number>;
  /** By their digests. */
  readonly answers: ReadonlyMap<string, KeptAnswer>;
  /** Share of the window that its event loop had work. */
  readonly busy: number;
}

export interface LoadFigures {
  /** Within the window. */
  readonly images: number;
  readonly imagesPerS: number;
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly longestMs: number;
  readonly answered: number;
  readonly answeredLater: number;
  readonly failed: number;
  readonly failures: Readonly<Record<string, number>>;
  readonly clientCores: number;
  readonly clientBusy: number;
  readonly answers: readonly KeptAnswer[];
}

interface Load {
  /** What comes from now on counts. */
  begin(): void;
  /** Asks no more, waits for what is under way, and gives the figures of the window. */
  end(): Promise<LoadFigures>;
}

const THREAD = new URL('./caller-thread.ts', import.meta.url);
const FAILURES_SHOWN = 5;

/** Callers ask from the beginning of `measure` on; however it ends, they are gone after it. */
export async function underLoad<Measured>(
  options: LoadOptions,
  measure: (load: Load) => Promise<Measured>,
): Promise<Measured> {
  const threads = Math.max(1, Math.min(options.threads, options.callers));
  const workers = Array.from({ length: threads }, (_, index) => {
    const callers = Math.floor((options.callers + index) / threads);
    return new Worker(THREAD, { workerData: { ...options, callers } });
  });
  const reported = workers.map(reportOf);
  let beganMs = performance.now();
  let cpu = process.cpuUsage();
  const load: Load = {
    begin: () => {
      beganMs = performance.now();
      cpu = process.cpuUsage();
      for (const worker of workers) worker.postMessage('begin');
    },
    end: async () => {
      const elapsedMs = performance.now() - beganMs;
      const { user, system } = process.cpuUsage(cpu);
      for (const worker of workers) worker.postMessage('end');
      const reports = await Promise.all(reported);
      const clientCores = (user + system) / 1000 / elapsedMs;
      return { ...summarise(reports, elapsedMs), clientCores };
    },
  };
  try {
    return await measure(load);
  } finally {
    await Promise.all(workers.map(worker => worker.terminate()));
  }
}

function reportOf(worker: Worker): Promise<ThreadReport> {
  const report = new Promise<ThreadReport>((resolve, reject) => {
    worker.once('message', resolve).once('error', reject);
    worker.once('exit', code => reject(new Error(`a thread of callers ended with ${code}`)));
  });
  // Looked at when the load ends: a thread that fails before must not end the program.
  report.catch(() => undefined);
  return report;
}

/** Of all threads. */
export function summarise(
  reports: readonly ThreadReport[],
  elapsedMs: number,
): Omit<LoadFigures, 'clientCores'> {
  const latenciesMs = reports.flatMap(report => report.latenciesMs);
  const failures = new Map<string, number>();
  const answers = new Map<string, KeptAnswer>();
  for (const report of reports) {
    for (const [message, count] of report.failures) {
      failures.set(message, (failures.get(message) ?? 0) + count);
    }
    for (const [digest, { count, file }] of report.answers) {
      answers.set(digest, { count: count + (answers.get(digest)?.count ?? 0), file });
    }
  }
  const total = (of: 'answered' | 'answeredLater') =>
    reports.reduce((sum, report) => sum + report[of], 0);
  const sorted = [...failures].toSorted(([, a], [, b]) => b - a);
  return {
    images: latenciesMs.length,
    imagesPerS: (1000 * latenciesMs.length) / elapsedMs,
    p50Ms: percentile(latenciesMs, 0.5),
    p99Ms: percentile(latenciesMs, 0.99),
    longestMs: percentile(latenciesMs, 1),
    answered: total('answered'),
    answeredLater: total('answeredLater'),
    failed: sorted.reduce((sum, [, count]) => sum + count, 0),
    failures: Object.fromEntries(sorted.slice(0, FAILURES_SHOWN)),
    clientBusy: Math.max(...reports.map(({ busy }) => busy)),
    answers: [...answers.values()],
  };
}
