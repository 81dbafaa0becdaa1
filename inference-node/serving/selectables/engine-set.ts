/** The engines of one prepared model, loaded when an image wants them. */
import { ContractError } from '@matting/proto/contract/errors.ts';
import type { Logger } from 'pino';
import { engineBytes } from '../admission.ts';
import { EngineAccounts } from '../engine/pool/engine-accounts.ts';
import type { EnginePool, EngineResult, EngineRun } from '../engine/pool/engine-pool.ts';
import type { NodeMetrics, UnloadCause } from '../metrics.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import type { EngineMemory, EngineShare } from './engine-memory.ts';

/*
 *   state     entered                              left
 *   unloaded  at first; its engines were ended     an image wants it -> loading
 *   loading   its memory is counted from here on   an engine ready -> loaded; fails -> unloaded
 *   loaded    the images that waited go on         idle, room for another, its model is gone,
 *                                                  its engines keep dying -> unloaded
 */
type EngineSetState = 'unloaded' | 'loading' | 'loaded';

/**
 * The set is off for this time after a first failure, and for twice as long after each further one.
 */
const OFF_MS = 30_000;
const OFF_MAX_MS = 15 * 60_000;
/** The interval between checks whether killed processes are gone. */
const GONE_ASKED_EACH_MS = 1000;

export interface EngineSetParts {
  readonly engines: number;
  readonly memory: Pick<EngineMemory, 'take'>;
  readonly idleMs: number;
  readonly log: Logger;
  /**
   * Checked as that of a start is; what it takes to make it stays within what its engines may
   * take. @throws Error where it cannot run here.
   */
  readonly prepare: (model: PreparedModel, memoryMaxBytes: number) => Promise<PreparedModel>;
  readonly open: (model: PreparedModel, engines: number) => EnginePool;
  readonly metrics: Pick<NodeMetrics, 'modelLoaded' | 'modelUnloaded'>;
  /** Called when a load ends or fails: the facts of the set are different then. */
  readonly onTurn: () => void;
}

export class EngineSet implements EnginePool {
  readonly #parts: EngineSetParts;
  readonly #listeners = new Set<() => void>();
  readonly #leaving = new Set<EnginePool>();
  #model: PreparedModel;
  #state: EngineSetState = 'unloaded';
  #ready: Promise<void> = Promise.resolve();
  #pool: EnginePool | undefined;
  #share: EngineShare | undefined;
  #images = 0;
  #idleTimer: NodeJS.Timeout | undefined;
  #idleSinceMs = 0;
  #loadSinceMs = 0;
  #loadMs = 0;
  #inferMs = 0;
  #failures = 0;
  #offUntilMs = Number.NEGATIVE_INFINITY;
  #isGone = false;
  #isClosed = false;

  constructor(model: PreparedModel, parts: EngineSetParts) {
    this.#model = model;
    this.#parts = parts;
  }

  /** The model as it was found until it is loaded, then as it runs. */
  get model(): PreparedModel {
    return this.#model;
  }

  get state(): EngineSetState {
    return this.#state;
  }

  get bytes(): number {
    return this.#parts.engines * engineBytes(this.#model);
  }

  /** The time that the last load took until an engine was ready; 0: no engine ever was. */
  get loadMs(): number {
    return this.#loadMs;
  }

  /** Undefined: the set is loading, or an image is in it. */
  get idleSinceMs(): number | undefined {
    return this.#state === 'loaded' && this.#images === 0 ? this.#idleSinceMs : undefined;
  }

  /** Undefined: the set is not loaded. */
  get servesSinceMs(): number | undefined {
    return this.#state === 'loaded' ? this.#loadSinceMs + this.#loadMs : undefined;
  }

  /** Loading failed a short while ago. */
  get isOff(): boolean {
    return performance.now() < this.#offUntilMs;
  }

  /** Loads the engines if needed, for an image. Call the returned function when it is over. */
  enter(): () => void {
    this.#images += 1;
    clearTimeout(this.#idleTimer);
    if (this.#state === 'unloaded') this.#load();
    let inside = true;
    return () => {
      if (!inside) return;
      inside = false;
      this.#images -= 1;
      this.#awaitIdle();
    };
  }

  /** Nothing names it any more: it ends with its last image. */
  retire(): void {
    this.#isGone = true;
    this.#awaitIdle();
  }

  /** @throws ContractError why the load failed that an image waited for. */
  ready(): Promise<void> {
    return this.#ready;
  }

  async run(run: EngineRun): Promise<EngineResult> {
    const pool = this.#pool;
    if (pool !== undefined) return await pool.run(run);
    throw new ContractError('NODE_UNAVAILABLE', 'The engines of this model have ended.');
  }

  snapshot() {
    const loadedMs = this.#state === 'loading' ? performance.now() - this.#loadSinceMs : 0;
    if (this.#state === 'loaded' && this.#pool !== undefined) return this.#pool.snapshot();
    return {
      ...({ state: 'starting', failure: undefined, engines: this.#parts.engines } as const),
      ...{ enginesReady: 0, enginesStuck: 0, running: 0, queued: 0, inferMs: this.#inferMs },
      estimatedWaitMs: Math.max(0, this.#loadMs - loadedMs),
    };
  }

  metrics() {
    return this.#pool?.metrics() ?? new EngineAccounts();
  }

  processes() {
    const pools = this.#pool === undefined ? this.#leaving : [this.#pool, ...this.#leaving];
    return [...pools].flatMap(pool => pool.processes());
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  async close(graceMs: number): Promise<void> {
    this.#isClosed = true;
    clearTimeout(this.#idleTimer);
    const pools = this.#pool === undefined ? this.#leaving : [this.#pool, ...this.#leaving];
    await Promise.all([...pools].map(pool => pool.close(graceMs)));
  }

  unload(cause: UnloadCause): void {
    if (this.#state === 'unloaded') return;
    const { log, metrics } = this.#parts;
    log.info({ ...this.#facts(), cause }, 'model unloaded');
    metrics.modelUnloaded(this.#model, cause);
    if (cause !== 'failed') this.#failures = 0;
    this.#end();
  }

  #load(): void {
    this.#state = 'loading';
    this.#loadSinceMs = performance.now();
    const share = this.#parts.memory.take(this.bytes);
    this.#share = share;
    this.#parts.log.info(this.#facts(), 'model loads');
    this.#ready = this.#untilLoaded(share);
    // The images that wait handle this rejection; there may be none any more.
    this.#ready.catch(() => undefined);
    this.#changed();
  }

  async #untilLoaded(share: EngineShare): Promise<void> {
    try {
      await this.#openEngines(share);
    } catch (error) {
      throw this.#failed(error);
    }
    this.#loadMs = performance.now() - this.#loadSinceMs;
    this.#state = 'loaded';
    const loadMs = Math.round(this.#loadMs);
    this.#parts.log.info({ ...this.#facts(), loadMs }, 'model loaded');
    this.#parts.metrics.modelLoaded(this.#model, 'loaded');
    this.#awaitIdle();
    this.#parts.onTurn();
    this.#changed();
  }

  async #openEngines(share: EngineShare): Promise<void> {
    await share.room();
    const bytes = this.bytes;
    this.#model = await this.#parts.prepare(this.#model, bytes);
    // The model may come in another precision than the one that was found.
    if (this.bytes > bytes) {
      share.resize(this.bytes);
      await share.room();
    }
    if (this.#isClosed) throw new ContractError('NODE_UNAVAILABLE', 'The node is shutting down.');
    const pool = this.#parts.open(this.#model, this.#parts.engines);
    this.#pool = pool;
    pool.onChange(() => this.#follow(pool));
    await pool.ready();
  }

  /** Makes the error for the images that waited. */
  #failed(error: unknown): ContractError {
    const { log, metrics } = this.#parts;
    this.#end();
    if (error instanceof ContractError) return error;
    metrics.modelLoaded(this.#model, 'failed');
    const offMs = this.#beOff();
    log.error({ ...this.#facts(), err: error, offMs }, 'model cannot be loaded');
    return new ContractError('NODE_FAULT', 'The model could not be loaded.', { cause: error });
  }

  #beOff(): number {
    const offMs = Math.min(OFF_MAX_MS, OFF_MS * 2 ** this.#failures);
    this.#failures += 1;
    this.#offUntilMs = performance.now() + offMs;
    this.#parts.onTurn();
    return offMs;
  }

  #follow(pool: EnginePool): void {
    if (pool !== this.#pool) return;
    const { state, inferMs } = pool.snapshot();
    this.#inferMs = inferMs;
    if (state === 'failed' && this.#state === 'loaded') {
      this.unload('failed');
      this.#beOff();
    } else this.#changed();
  }

  #awaitIdle(): void {
    if (this.#state !== 'loaded' || this.#images > 0 || this.#isClosed) return;
    clearTimeout(this.#idleTimer);
    if (this.#isGone) {
      this.unload('gone');
      return;
    }
    this.#idleSinceMs = performance.now();
    this.#idleTimer = setTimeout(() => this.unload('idle'), this.#parts.idleMs);
  }

  #end(): void {
    clearTimeout(this.#idleTimer);
    const pool = this.#pool;
    const share = this.#share;
    this.#state = 'unloaded';
    this.#pool = undefined;
    this.#share = undefined;
    if (pool === undefined) share?.release();
    else {
      this.#leaving.add(pool);
      share?.leave();
      void this.#untilGone(pool).then(() => share?.release());
    }
    this.#changed();
  }

  async #untilGone(pool: EnginePool): Promise<void> {
    await pool.close(0);
    while (pool.processes().length > 0) {
      await new Promise(resolve => setTimeout(resolve, GONE_ASKED_EACH_MS).unref());
    }
    this.#leaving.delete(pool);
  }

  #facts() {
    const { model, inputWidth, inputHeight, precision } = this.#model;
    const memoryMb = Math.round(this.bytes / 1e6);
    const { engines } = this.#parts;
    return { model, inputWidth, inputHeight, precision, engines, memoryMb };
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}
