/** What a node says of itself while something is done to it: its log, /info, engines. */
import { readFileSync, statSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { readCounts } from './node-metrics.ts';
import type { StartedService } from './started-service.ts';

const POLL_MS = 250;
const WARNING_LEVEL = 40;
const LINES_MAX = 12;
/** Lines at a lower level that tell how it went on. */
const TOLD = ['engine ready', 'serving', 'GPU is back'];

interface LogLine {
  readonly level?: number;
  readonly msg?: string;
  readonly reason?: string;
  readonly cause?: string;
  readonly error?: string;
  readonly err?: { readonly message?: string };
}

/** Each different one once, with how often it came, from the first on. Pure. */
export function describeLog(text: string): string[] {
  const counts = new Map<string, number>();
  for (const line of text.split('\n')) {
    const said = describeLine(line);
    if (said !== undefined) counts.set(said, (counts.get(said) ?? 0) + 1);
  }
  const lines = [...counts].map(([said, count]) =>
    count === 1 ? said : `${said} (${count} times)`,
  );
  return lines.slice(0, LINES_MAX);
}

function describeLine(line: string): string | undefined {
  let entry: LogLine;
  try {
    entry = JSON.parse(line) as LogLine;
  } catch {
    // A program's last words are not JSON.
    return line.trim() === '' ? undefined : line.trim();
  }
  const { level = 0, msg = '', reason, cause, error, err } = entry;
  if (level < WARNING_LEVEL && !TOLD.includes(msg)) return undefined;
  const why = [cause, reason ?? error ?? err?.message].filter(Boolean).join(', ');
  return why === '' ? msg : `${msg}: ${why}`;
}

export class WatchedNode {
  readonly #service: StartedService;
  readonly #states: string[] = [];
  readonly #logFrom: number;
  readonly #enginesBefore: number;
  #watching = true;
  readonly #watched: Promise<void>;

  constructor(service: StartedService) {
    this.#service = service;
    this.#logFrom = statSync(service.nodeLogFile).size;
    this.#enginesBefore = this.engines().length;
    this.#watched = this.#watch();
  }

  /** What /info said, in turn: each change once. */
  get states(): readonly string[] {
    return this.#states;
  }

  log(): string[] {
    const text = readFileSync(this.#service.nodeLogFile).subarray(this.#logFrom).toString();
    return describeLog(text);
  }

  /** Of the engines that live now; none while the node is down. */
  engines(): number[] {
    try {
      return this.#service.engines();
    } catch {
      return [];
    }
  }

  /**
   * Until that process is gone, as many engines live as before, and all are ready.
   * @throws the signal's reason.
   */
  async untilWellWithout(pid: number, signal: AbortSignal): Promise<void> {
    while (!(await this.#isWell(pid))) await delay(POLL_MS, undefined, { signal });
  }

  async end(): Promise<void> {
    this.#watching = false;
    await this.#watched;
  }

  async #isWell(pid: number): Promise<boolean> {
    const alive = this.engines();
    // First: what the node says may be older than the loss.
    if (alive.includes(pid) || alive.length < this.#enginesBefore) return false;
    try {
      const { engines, enginesReady } = await readCounts(this.#service.nodeHttpUrl);
      const { state } = await this.#service.info();
      return state === 'serving' && engines > 0 && engines === enginesReady;
    } catch {
      return false;
    }
  }

  async #watch(): Promise<void> {
    while (this.#watching) {
      const said = await this.#describe();
      if (said !== this.#states.at(-1)) this.#states.push(said);
      await delay(POLL_MS);
    }
  }

  async #describe(): Promise<string> {
    try {
      const { state, gpus = [] } = await this.#service.info();
      const out = gpus.filter(({ up }) => !up).map(({ outReason }) => `GPU out: ${outReason}`);
      return [state, ...out].join(', ');
    } catch {
      return 'no answer';
    }
  }
}
