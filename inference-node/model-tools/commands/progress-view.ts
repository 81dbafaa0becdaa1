import type { Writable } from 'node:stream';
import type { PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';
import cliProgress from 'cli-progress';
import type { FetchProgress } from '../weights/fetch.ts';

export interface ProgressView {
  fetching(model: string, progress: FetchProgress): void;
  preparing(model: string, progress: PrepareProgress): void;
  stop(): void;
}

export function createProgressView(out: Writable & { readonly isTTY?: boolean }): ProgressView {
  return out.isTTY === true ? barView(out) : plainView(out);
}

const FRAMES_PER_SECOND = 10;

function barView(out: Writable): ProgressView {
  let bar: cliProgress.SingleBar | undefined;
  const stop = () => {
    bar?.stop();
    bar = undefined;
  };
  return {
    fetching: (model, { receivedBytes, totalBytes }) => {
      bar ??= startBar(out, model, totalBytes ?? 0);
      bar.update(receivedBytes, { megabytes: megabytes(receivedBytes) });
    },
    preparing: (model, progress) => {
      stop();
      writePreparation(out, model, progress);
    },
    stop,
  };
}

function startBar(out: Writable, model: string, totalBytes: number): cliProgress.SingleBar {
  const figures = `{percentage} % {megabytes} of ${megabytes(totalBytes)} MB, {eta_formatted}`;
  const bar = new cliProgress.SingleBar(
    {
      format: `fetching ${model} {bar} ${figures}`,
      // The types want a stream of their own, but any writable one works.
      stream: out as NodeJS.WritableStream,
      fps: FRAMES_PER_SECOND,
      hideCursor: true,
      gracefulExit: false,
    },
    cliProgress.Presets.shades_classic,
  );
  bar.start(totalBytes, 0, { megabytes: '0.0' });
  return bar;
}

const PLAIN_STEP_PERCENT = 25;

function plainView(out: Writable): ProgressView {
  let nextPercent = 0;
  return {
    fetching: (model, { receivedBytes, totalBytes }) => {
      const percent = totalBytes ? Math.floor((receivedBytes / totalBytes) * 100) : 0;
      // The count restarts after a broken connection.
      if (percent < nextPercent - PLAIN_STEP_PERCENT) nextPercent = 0;
      if (percent < nextPercent) return;
      nextPercent = percent - (percent % PLAIN_STEP_PERCENT) + PLAIN_STEP_PERCENT;
      const total = totalBytes === undefined ? '' : ` of ${megabytes(totalBytes)}`;
      out.write(`fetching ${model}: ${megabytes(receivedBytes)}${total} MB, ${percent} %\n`);
    },
    preparing: (model, progress) => writePreparation(out, model, progress),
    stop: () => {
      nextPercent = 0;
    },
  };
}

/** Smooth enough for a program's own bar, and few enough lines to read. */
const JSON_INTERVAL_MS = 100;

/** A JSON object a line: `{"event": "fetch" | "prepare", "model", …}` and the progress. */
export function jsonView(out: Writable): ProgressView {
  let lastMs = Number.NEGATIVE_INFINITY;
  const isDue = (isLast: boolean) => {
    const nowMs = performance.now();
    if (!isLast && nowMs - lastMs < JSON_INTERVAL_MS) return false;
    lastMs = nowMs;
    return true;
  };
  const write = (event: object) => out.write(`${JSON.stringify(event)}\n`);
  return {
    fetching: (model, progress) => {
      if (isDue(progress.receivedBytes === progress.totalBytes)) {
        write({ event: 'fetch', model, ...progress });
      }
    },
    preparing: (model, progress) => {
      if (progress.step !== 'write' || isDue(false))
        write({ event: 'prepare', model, ...progress });
    },
    stop: () => {
      lastMs = Number.NEGATIVE_INFINITY;
    },
  };
}

const MEGABYTE = 1e6;

function megabytes(bytes: number): string {
  return (bytes / MEGABYTE).toFixed(1);
}

function writePreparation(out: Writable, model: string, progress: PrepareProgress): void {
  const line = preparationLine(model, progress);
  if (line !== undefined) out.write(`${line}\n`);
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
