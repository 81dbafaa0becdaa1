/**
 * Counts what becomes of spans, and says at most once a minute that a collector takes none. The
 * queue is the SDK's; since it counts nothing that can be read, the same bound is held before it.
 */
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import type { ReadableSpan, SpanExporter, SpanProcessor } from '@opentelemetry/sdk-trace';
import type { Logger } from 'pino';
import type { SpanObserver } from '../span.ts';

const COMPLAINT_PAUSE_MS = 60_000;

export interface CountedExportOptions {
  readonly observer: SpanObserver;
  readonly log: Pick<Logger, 'info' | 'warn'>;
  readonly queueSpansMax: number;
}

/** Both ends of one queue. */
export class CountedExport {
  readonly #options: CountedExportOptions;
  #waiting = 0;
  #complainedAtMs = Number.NEGATIVE_INFINITY;
  #failing = false;

  constructor(options: CountedExportOptions) {
    this.#options = options;
  }

  /** Before the queue. */
  processor(queue: SpanProcessor): SpanProcessor {
    return {
      onStart: (span, context) => queue.onStart(span, context),
      onEnd: span => {
        if (this.#waiting >= this.#options.queueSpansMax) {
          this.#options.observer.spansEnded('dropped', 1);
          return;
        }
        this.#waiting += 1;
        queue.onEnd(span);
      },
      forceFlush: () => queue.forceFlush(),
      shutdown: () => queue.shutdown(),
    };
  }

  /** Behind it. */
  exporter(exporter: SpanExporter): SpanExporter {
    return {
      export: (spans, done) => {
        this.#waiting -= spans.length;
        exporter.export(spans, result => {
          this.#count(spans, result);
          done(result);
        });
      },
      forceFlush: async () => await exporter.forceFlush?.(),
      shutdown: () => exporter.shutdown(),
    };
  }

  #count(spans: readonly ReadableSpan[], { code, error }: ExportResult): void {
    const { observer, log } = this.#options;
    if (code === ExportResultCode.SUCCESS) {
      observer.spansEnded('exported', spans.length);
      if (this.#failing) log.info('the collector takes traces again');
      this.#failing = false;
      return;
    }
    observer.spansEnded('failed', spans.length);
    this.#failing = true;
    const nowMs = performance.now();
    if (nowMs - this.#complainedAtMs < COMPLAINT_PAUSE_MS) return;
    this.#complainedAtMs = nowMs;
    // A message may have the collector's address, and what it answered.
    log.warn({ code: codeOf(error), spans: spans.length }, 'the collector took no traces');
  }
}

/** Of the system, or the HTTP status. */
function codeOf(error: unknown): string | undefined {
  const code = (error as { code?: unknown } | undefined)?.code;
  return code === undefined ? undefined : String(code);
}
