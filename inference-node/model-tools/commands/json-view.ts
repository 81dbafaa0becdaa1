/** Tells a program how far fetching and preparing is. */
import type { Writable } from 'node:stream';
import type { PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';
import type { FetchProgress } from '../weights/fetch.ts';

/** A program draws its own bar: this is often enough to be smooth, and rare enough to read. */
const JSON_INTERVAL_MS = 100;

/** One JSON object a line: `{"event": "fetch" | "prepare", "model", …}` and the progress. */
export class JsonView {
  readonly #out: Writable;
  #lastMs = Number.NEGATIVE_INFINITY;

  constructor(out: Writable) {
    this.#out = out;
  }

  fetching(model: string, progress: FetchProgress): void {
    if (!this.#due(progress.receivedBytes === progress.totalBytes)) return;
    this.#line({ event: 'fetch', model, ...progress });
  }

  preparing(model: string, progress: PrepareProgress): void {
    if (progress.step === 'write' && !this.#due(false)) return;
    this.#line({ event: 'prepare', model, ...progress });
  }

  stop(): void {
    this.#lastMs = Number.NEGATIVE_INFINITY;
  }

  #due(last: boolean): boolean {
    const nowMs = performance.now();
    if (!last && nowMs - this.#lastMs < JSON_INTERVAL_MS) return false;
    this.#lastMs = nowMs;
    return true;
  }

  #line(event: object): void {
    this.#out.write(`${JSON.stringify(event)}\n`);
  }
}
