/** Shows a person at a terminal how far fetching and preparing is. */
import type { Writable } from 'node:stream';
import type { PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';
import cliProgress from 'cli-progress';
import type { FetchProgress } from '../weights/fetch.ts';
import { megabytes, preparationLine } from './progress-words.ts';

const FRAMES_PER_SECOND = 10;

export class BarView {
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
