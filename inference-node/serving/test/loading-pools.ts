/** Pools that open while a node serves. */
import { FakeEnginePool, type StageGates } from './fake-pools.ts';

export class LoadingPool extends FakeEnginePool {
  readonly #ready = Promise.withResolvers<void>();
  readonly #gone = Promise.withResolvers<void>();
  /** If false, its process stays until `leave`. */
  leavesAtOnce = true;
  #lives = true;

  constructor(gates: StageGates) {
    super(gates);
    this.set({ state: 'starting', enginesReady: 0 });
  }

  override ready(): Promise<void> {
    return this.#ready.promise;
  }

  load(): void {
    this.set({ state: 'ready', enginesReady: 1 });
    this.#ready.resolve();
  }

  breakDown(reason: string): void {
    this.set({ state: 'failed', failure: reason, enginesReady: 0 });
    this.#ready.reject(new Error(reason));
  }

  leave(): void {
    this.#lives = false;
    this.#gone.resolve();
  }

  override processes() {
    return this.#lives ? [{ engine: 0, pid: 1, residentBytes: undefined }] : [];
  }

  override async close(graceMs: number): Promise<void> {
    await super.close(graceMs);
    this.#ready.reject(new Error('closed'));
    if (this.leavesAtOnce) this.leave();
    await this.#gone.promise;
  }
}
