/**
 * Engines that end after a time without images. The next image loads them again. Their memory stays
 * counted, so an admitted image finds room. Unloaded engines count as ready, so that the node
 * serves. If they cannot be loaded again, the pool fails and the node ends.
 */
import { within } from '@matting/program/waiting.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Logger } from 'pino';
import { EngineCounters } from './engine-counters.ts';
import type { EnginePool, EnginePoolSnapshot, EngineResult, EngineRun } from './engine-pool.ts';

/** A killed process is gone within seconds, or it is stuck. */
const GONE_MAX_MS = 10_000;
const GONE_POLL_MS = 1000;

interface IdleEnginesParts {
  readonly model: string;
  readonly engines: number;
  readonly idleMs: number;
  readonly log: Logger;
  readonly open: () => EnginePool;
}

export class IdleEngines implements EnginePool {
  readonly #parts: IdleEnginesParts;
  readonly #listeners = new Set<() => void>();
  readonly #started: Promise<EnginePool>;
  /** Undefined: the engines are unloaded. */
  #loaded: Promise<EnginePool> | undefined;
  #pool: EnginePool | undefined;
  #isReady = false;
  #hasBeenReady = false;
  #failure: string | undefined;
  #gone: Promise<void> = Promise.resolve();
  #images = 0;
  #idleTimer: NodeJS.Timeout | undefined;
  #loadSinceMs = 0;
  #loadMs = 0;
  #inferMs = 0;
  #isClosed = false;

  constructor(parts: IdleEnginesParts) {
    this.#parts = parts;
    this.#started = this.#load();
    this.#loaded = this.#started;
  }

  async ready(): Promise<void> {
    await this.#started;
  }

  async run(run: EngineRun): Promise<EngineResult> {
    this.#images += 1;
    clearTimeout(this.#idleTimer);
    try {
      const pool = await this.#untilLoaded(run);
      return await pool.run(run);
    } finally {
      this.#images -= 1;
      this.#awaitIdle();
    }
  }

  snapshot(): EnginePoolSnapshot {
    if (this.#isReady && this.#pool !== undefined) return this.#pool.snapshot();
    const { engines } = this.#parts;
    const [state, enginesReady] = this.#hasBeenReady
      ? (['ready', engines] as const)
      : (['starting', 0] as const);
    const failure = this.#failure;
    const elapsedMs = performance.now() - this.#loadSinceMs;
    const isLoading = this.#loaded !== undefined;
    return {
      ...{ engines, enginesStuck: 0, running: 0, queued: 0, inferMs: this.#inferMs, failure },
      ...(failure === undefined ? { state, enginesReady } : { state: 'failed', enginesReady: 0 }),
      estimatedWaitMs: isLoading ? Math.max(0, this.#loadMs - elapsedMs) : 0,
    };
  }

  metrics() {
    return this.#pool?.metrics() ?? new EngineCounters();
  }

  processes() {
    return this.#pool?.processes() ?? [];
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(graceMs: number): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#idleTimer);
    await this.#pool?.close(graceMs);
  }

  async #untilLoaded({ failsWhenDown }: EngineRun): Promise<EnginePool> {
    this.#loaded ??= this.#load();
    try {
      return await this.#loaded;
    } catch (cause) {
      const code = failsWhenDown ? 'ENGINE_LOST' : 'NODE_FAULT';
      throw new ContractError(code, 'The engines could not be loaded.', { cause });
    }
  }

  #load(): Promise<EnginePool> {
    this.#loadSinceMs = performance.now();
    const loaded = this.#openEngines();
    // Waiting images handle the rejection, but there may be none.
    loaded.catch(error => this.#failed(error));
    this.#changed();
    return loaded;
  }

  async #openEngines(): Promise<EnginePool> {
    await within(this.#gone, GONE_MAX_MS, stuck);
    if (this.#isClosed) throw new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.');
    const pool = this.#parts.open();
    this.#pool = pool;
    pool.onChange(() => this.#changed());
    await pool.ready();
    this.#isReady = true;
    this.#hasBeenReady = true;
    this.#loadMs = performance.now() - this.#loadSinceMs;
    const { log, model } = this.#parts;
    log.info({ model, loadMs: Math.round(this.#loadMs) }, 'model loaded');
    this.#awaitIdle();
    this.#changed();
    return pool;
  }

  #failed(err: unknown): void {
    if (this.#isClosed) return;
    const { log, model } = this.#parts;
    this.#failure = `the engines of ${model} cannot be loaded`;
    log.error({ model, err }, 'model cannot be loaded');
    this.#changed();
  }

  #awaitIdle(): void {
    if (!this.#isReady || this.#images > 0 || this.#isClosed) return;
    clearTimeout(this.#idleTimer);
    this.#idleTimer = setTimeout(() => this.#unload(), this.#parts.idleMs);
  }

  #unload(): void {
    const pool = this.#pool;
    // A failed pool stays, since the node ends by its state.
    if (pool === undefined || pool.snapshot().state === 'failed') return;
    this.#inferMs = pool.snapshot().inferMs;
    this.#isReady = false;
    this.#loaded = undefined;
    this.#gone = untilGone(pool);
    this.#parts.log.info({ model: this.#parts.model }, 'model unloaded');
    this.#changed();
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

async function untilGone(pool: EnginePool): Promise<void> {
  await pool.close(0);
  while (pool.processes().length > 0) {
    await new Promise(resolve => setTimeout(resolve, GONE_POLL_MS).unref());
  }
}

function stuck(): Error {
  // A ContractError would leave the node ready, although stuck processes prevent a load.
  return new Error('the engines before these were killed and do not die');
}
