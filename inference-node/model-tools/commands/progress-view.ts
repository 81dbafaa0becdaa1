/** Shows a person, a log or a program how far fetching and preparing a model is. */
import type { Writable } from 'node:stream';
import type { PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';
import cliProgress from 'cli-progress';
import type { FetchProgress } from '../weights/fetch.ts';

export interface ProgressView {
  fetching(model: string, progress: FetchProgress): void;
  preparing(model: string, progress: PrepareProgress): void;
  stop(): void;
}

const MEGABYTE = 1e6;
const FRAMES_PER_SECOND = 10;
/** Without a terminal a line is written at each of these steps. */
const PLAIN_STEP_PERCENT = 25;
/** A program draws its own bar: this is often enough to be smooth, and rare enough to read. */
const JSON_INTERVAL_MS = 100;

export function createProgressView(out: Writable & { readonly isTTY?: boolean }): ProgressView {
  return out.isTTY === true ? new BarView(out) : new PlainView(out);
}

class BarView implements ProgressView {
  readonly #out: Writable;
  #bar: cliProgress.SingleBar | undefined;

  constructor(out: Writable) {
    this.#out = out;
  }

  fetching(model: string, { receivedBytes, totalBytes }: FetchProgress): void {
    this.#bar ??= this.#start(model, totalBytes ?? 0);
    this.#bar.update(receivedBytes, { megabytes: megabytes(receivedBytes) });
  }

  preparing(model: string, progress: PrepareProgress): void {
    this.stop();
    const line = preparationLine(model, progress);
    if (line !== undefined) this.#out.write(`${line}\n`);
  }

  stop(): void {
    this.#bar?.stop();
    this.#bar = undefined;
  }

  #start(model: string, totalBytes: number): cliProgress.SingleBar {
    const total = megabytes(totalBytes);
    const figures = `{percentage} % {megabytes} of ${total} MB, {eta_formatted}`;
    const format = `fetching ${model} {bar} ${figures}`;
    const bar = new cliProgress.SingleBar(
      {
        format,
        // The types ask for a stream of their own; any writable one does.
        stream: this.#out as NodeJS.WritableStream,
        fps: FRAMES_PER_SECOND,
        hideCursor: true,
        gracefulExit: false,
      },
      cliProgress.Presets.shades_classic,
    );
    bar.start(totalBytes, 0, { megabytes: '0.0' });
    return bar;
  }
}

class PlainView implements ProgressView {
  readonly #out: Writable;
  #nextPercent = 0;

  constructor(out: Writable) {
    this.#out = out;
  }

  fetching(model: string, { receivedBytes, totalBytes }: FetchProgress): void {
    const percent = totalBytes ? Math.floor((receivedBytes / totalBytes) * 100) : 0;
    // It starts again where a broken connection is tried again.
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

/** One JSON object a line: `{"event": "fetch" | "prepare", "model", …}` and the progress. */
export class JsonView implements ProgressView {
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

function preparationLine(model: string, progress: PrepareProgress): string | undefined {
  if (progress.step === 'rewrite') {
    return `preparing ${model} at ${progress.width} x ${progress.height} px for this machine`;
  }
  if (progress.step === 'compare') {
    const found = `${progress.blocks} deformable convolutions of ${model}`;
    return `rewrote ${found}; comparing them with the original`;
  }
  if (progress.step === 'mended') return `${model} runs rewritten, though ${progress.reason}`;
  if (progress.step === 'keep') {
    return `${model} runs as published, slower and with more memory: ${progress.reason}`;
  }
  if (progress.step === 'discard') {
    return `preparing ${progress.path} again: ${progress.reason}`;
  }
  return undefined;
}

export function megabytes(bytes: number): string {
  return (bytes / MEGABYTE).toFixed(1);
}
