/**
 * What nvidia-smi says of one GPU while something runs: how busy it is and what memory is taken.
 * One process of it is asked to repeat itself; where that ends, or says nothing for a while, as one
 * does whose lines wait in a pipe, it is started again and again instead.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { SMI_COMMAND, smiEnvironment } from '../../inference-node/src/engine/devices/nvidia-smi.ts';
import { mean } from './figures.ts';

export interface SmiSample {
  /** By performance.now(). */
  readonly atMs: number;
  /** 0 to 1; undefined: the GPU does not say. */
  readonly busy: number | undefined;
  readonly memoryMib: number | undefined;
}

export interface SmiFigures {
  readonly samples: number;
  /** Mean, 0 to 1. */
  readonly gpuBusy: number | undefined;
  readonly gpuMemoryMib: number | undefined;
}

export interface SmiSampler {
  /** Of a window of time, by performance.now(). */
  between(fromMs: number, toMs: number): SmiFigures;
  /** The last that is known. */
  last(): SmiSample | undefined;
  close(): void;
}

const FIELDS = 'utilization.gpu,memory.used';
const INTERVAL_MS = 250;
/** What one call takes, some 50 ms of a core, is worth it no more often. */
const POLL_INTERVAL_MS = 1000;
const SILENT_MAX_MS = 5000;
const POLL_MAX_MS = 5000;

/** A line of the query, as `97, 5312`; undefined: it is none. Figures may be words: `[N/A]`. */
export function parseSmiLine(line: string, atMs: number): SmiSample | undefined {
  const cells = line.split(',').map(text => text.trim());
  if (cells.length !== 2 || !cells.every(text => /^(\d+|\[.*\])$/.test(text))) return undefined;
  const [busy, memoryMib] = cells.map(text => (/^\d+$/.test(text) ? Number(text) : undefined));
  return { atMs, busy: busy === undefined ? undefined : busy / 100, memoryMib };
}

/** The mean share of time that it was busy, the most memory. */
export function summariseSmi(samples: readonly SmiSample[]): SmiFigures {
  const busy = samples.flatMap(sample => sample.busy ?? []);
  const memory = samples.flatMap(sample => sample.memoryMib ?? []);
  return {
    samples: samples.length,
    gpuBusy: busy.length === 0 ? undefined : mean(busy),
    gpuMemoryMib: memory.length === 0 ? undefined : Math.max(...memory),
  };
}

/** Says nothing for ever where there is no nvidia-smi. @param id as nvidia-smi takes it */
export function openSmiSampler(id: string): SmiSampler {
  const samples: SmiSample[] = [];
  const query = ['-i', id, `--query-gpu=${FIELDS}`, '--format=csv,noheader,nounits'];
  const options = { env: smiEnvironment(process.env) };
  const take = (line: string) => {
    const sample = parseSmiLine(line, performance.now());
    if (sample !== undefined) samples.push(sample);
  };
  let timer: NodeJS.Timeout | undefined;
  let closed = false;
  const looping: ChildProcess = spawn(SMI_COMMAND, [...query, '-lms', String(INTERVAL_MS)], {
    ...options,
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  if (looping.stdout !== null) createInterface(looping.stdout).on('line', take);
  const poll = () => {
    const asked = { ...options, timeout: POLL_MAX_MS };
    execFile(SMI_COMMAND, query, asked, (error, text) => {
      if (error === null) for (const line of text.split('\n')) take(line);
      if (!closed) timer = setTimeout(poll, POLL_INTERVAL_MS);
    });
  };
  timer = setTimeout(() => {
    if (samples.length === 0) looping.kill('SIGKILL');
  }, SILENT_MAX_MS);
  looping.on('error', () => undefined);
  looping.once('exit', () => {
    clearTimeout(timer);
    if (!closed) poll();
  });
  return {
    between: (fromMs, toMs) =>
      summariseSmi(samples.filter(({ atMs }) => atMs >= fromMs && atMs <= toMs)),
    last: () => samples.at(-1),
    close: () => {
      closed = true;
      clearTimeout(timer);
      looping.kill('SIGKILL');
    },
  };
}
