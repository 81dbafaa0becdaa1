import { setImmediate as nextTick } from 'node:timers/promises';
import { oddNumberIn } from '@matting/proto/contract/odd-numbers.ts';
import type { WatchCapacityResponse } from '@matting/proto/gen/matting/v1/matte_service.ts';
import type { NodeClient } from './node-client.ts';

/** Five missed reports: a node reports every second. */
const REPORT_SILENCE_MAX_MS = 5000;
/** A node reports a change after 20 ms at the earliest. */
const REPORT_INTERVAL_MIN_MS = 10;
/** We replace a connection before a node older than 0.4.0 asks for that, after 9 to 11 minutes. */
const CONNECTION_AGE_MAX_MS = 8 * 60_000;

interface CapacityStreamOptions {
  readonly onReport: (report: WatchCapacityResponse) => void;
  readonly signal: AbortSignal;
  readonly connectionAgeMaxMs?: number | undefined;
}

export class CapacityStream {
  readonly client: NodeClient;
  readonly reported: Promise<void>;
  readonly ended: Promise<'ended'>;
  /** Resolves once the connection is old, or its peer asked for a new one. */
  readonly due: Promise<void>;
  readonly cancel: () => void;

  constructor(client: NodeClient, options: CapacityStreamOptions) {
    const { onReport, signal, connectionAgeMaxMs = CONNECTION_AGE_MAX_MS } = options;
    this.client = client;
    const stream = client.watchCapacity();
    const reported = Promise.withResolvers<void>();
    const ended = Promise.withResolvers<'ended'>();
    const due = Promise.withResolvers<void>();
    this.reported = reported.promise;
    this.ended = ended.promise;
    this.due = due.promise;
    // Marks rejections as handled, since a caller may await only one of the two promises.
    for (const promise of [this.reported, this.ended]) promise.catch(() => undefined);
    this.cancel = () => stream.cancel();
    signal.addEventListener('abort', this.cancel, { once: true });
    if (signal.aborted) this.cancel();
    const silence = setTimeout(this.cancel, REPORT_SILENCE_MAX_MS);
    const age = setTimeout(due.resolve, connectionAgeMaxMs * (1 - Math.random() / 10));
    const end = (error?: Error) => {
      clearTimeout(silence);
      clearTimeout(age);
      signal.removeEventListener('abort', this.cancel);
      reported.reject(error ?? new Error('the node ended its reports'));
      ended.resolve('ended');
    };
    stream.on('data', (report: WatchCapacityResponse) => {
      stream.pause();
      setTimeout(() => stream.resume(), REPORT_INTERVAL_MIN_MS);
      silence.refresh();
      const odd = oddNumberIn(report);
      if (odd !== undefined) {
        const fault = new Error(`the node reports ${odd} out of range`);
        ended.reject(fault);
        end(fault);
        this.cancel();
        return;
      }
      onReport(report);
      reported.resolve();
    });
    // A cancelled stream may report its end twice.
    stream.on('error', end);
    stream.on('end', end);
    client.onMoved(due.resolve);
  }

  async over(): Promise<'ended' | 'due'> {
    await Promise.race([this.ended, this.due]);
    // A broken connection is due at once, and its stream ends a moment later. The end counts.
    return await Promise.race([this.ended, nextTick('due' as const)]);
  }
}
