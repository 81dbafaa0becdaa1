/** Writes lines of how far fetching and preparing is, for a log. */
import type { Writable } from 'node:stream';
import type { PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';
import type { FetchProgress } from '../weights/fetch.ts';
import { megabytes, preparationLine } from './progress-words.ts';

/** Without a terminal a line is written at each of these steps. */
const PLAIN_STEP_PERCENT = 25;

export class PlainView {
  readonly #out: Writable;
  #nextPercent = 0;

  constructor(out: Writable) {
    this.#out = out;
  }

  fetching(model: string, { receivedBytes, totalBytes }: FetchProgress): void {
    const percent = totalBytes ? Math.floor((receivedBytes / totalBytes) * 100) : 0;
    // The count starts again if a broken connection is tried again.
    if (percent < this.#nextPercent - PLAIN_STEP_PERCENT) this.#nextPercent = 0;
    if (percent < this.#nextPercent) return;
    this.#nextPercent = percent - (percent % PLAIN_STEP_PERCENT) + PLAIN_STEP_PERCENT;
    const total = totalBytes === undefined ? '' : ` of ${megabytes(totalBytes)}`;
    this.#out.write(`fetching ${model}: ${megabytes(receivedBytes)}${total} MB, ${percent} %\n`);
  }

  preparing(model: string, progress: PrepareProgress): void {
    const line = preparationLine(model, progress);
    if (line !== undefined) this.#out.write(`${line}\n`);
  }

  stop(): void {
    this.#nextPercent = 0;
  }
}
