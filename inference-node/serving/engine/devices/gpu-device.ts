import type { GpuFacts } from './list-gpus.ts';

export class GpuDevice {
  readonly facts: GpuFacts;
  readonly opening = new OpeningMutex();
  readonly #listeners = new Set<(reason: string) => void>();
  #outReason: string | undefined;

  constructor(facts: GpuFacts) {
    this.facts = facts;
  }

  /** Why the GPU is lost, in one line. It stays lost until the node restarts. */
  get outReason(): string | undefined {
    return this.#outReason;
  }

  /** Engines see only this GPU, as CUDA's device 0. */
  envOf(childEnv: Readonly<Record<string, string>>): Record<string, string> {
    return { ...childEnv, CUDA_VISIBLE_DEVICES: this.facts.id };
  }

  lose(reason: string): void {
    if (this.#outReason !== undefined) return;
    this.#outReason = reason;
    for (const listener of [...this.#listeners]) listener(reason);
  }

  onLost(listener: (reason: string) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  get listenerCount(): number {
    return this.#listeners.size;
  }
}

/** Engines of a GPU load one by one, so that they do not compete for its memory and the disk. */
export class OpeningMutex {
  #holder: object | undefined;
  readonly #waiting: { readonly who: object; readonly begin: () => void }[] = [];

  /** Calls `begin` once: now, or after the callers before. Never after `leave(who)`. */
  take(who: object, begin: () => void): void {
    this.leave(who);
    this.#waiting.push({ who, begin });
    this.#next();
  }

  leave(who: object): void {
    const index = this.#waiting.findIndex(waiting => waiting.who === who);
    if (index !== -1) this.#waiting.splice(index, 1);
    if (this.#holder !== who) return;
    this.#holder = undefined;
    this.#next();
  }

  #next(): void {
    if (this.#holder !== undefined) return;
    const next = this.#waiting.shift();
    if (next === undefined) return;
    this.#holder = next.who;
    next.begin();
  }
}
