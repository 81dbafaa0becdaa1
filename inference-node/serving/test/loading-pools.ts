/** Engine pools that are opened while a node serves: a test says when they are ready and gone. */
import type { PreparedModel } from '../models/prepared-model.ts';
import type { Selectable } from '../models/selectable.ts';
import { FakeEnginePool, type StageGates, TINY_MODEL } from './fake-pools.ts';

/** Makes a model alone that a request may name. */
export function selectableModel(name: string, change: Partial<PreparedModel> = {}): Selectable {
  const weights = [Buffer.from(name).toString('hex')];
  const model = { ...TINY_MODEL, model: name, path: `/nowhere/${name}`, weights, ...change };
  return {
    name,
    kind: 'model',
    goodFor: `${name} is for tests`,
    models: [{ model, role: 'subject' }],
  };
}

export class LoadingPool extends FakeEnginePool {
  readonly model: PreparedModel;
  readonly #ready = Promise.withResolvers<void>();
  readonly #gone = Promise.withResolvers<void>();
  /** If false, its process stays when it is closed, until `leave`. */
  leavesAtOnce = true;
  #lives = true;

  constructor(model: PreparedModel, gates: StageGates) {
    super(gates);
    this.model = model;
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
