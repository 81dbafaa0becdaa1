/**
 * A GPU that engines of this node run on. It is up or out; what is out takes the engines on it
 * down, in every pool, and no other.
 *
 *   up ──its engines keep dying, or CUDA says that it is gone──► out
 *   out ──device-watch.ts found that it runs again──► up
 */
import type { GpuFacts } from './nvidia-smi.ts';

export class GpuDevice {
  readonly facts: GpuFacts;
  readonly turns = new OpeningTurns();
  readonly #listeners = new Set<() => void>();
  #outReason: string | undefined;

  constructor(facts: GpuFacts) {
    this.facts = facts;
  }

  /** Why it is out, in one line; undefined: it is up. */
  get outReason(): string | undefined {
    return this.#outReason;
  }

  /** Engines see this GPU alone, as CUDA's device 0, whatever CUDA's own order is. */
  envOf(childEnv: Readonly<Record<string, string>>): Record<string, string> {
    return { ...childEnv, CUDA_VISIBLE_DEVICES: this.facts.id };
  }

  lose(reason: string): void {
    if (this.#outReason !== undefined) return;
    this.#outReason = reason;
    this.#changed();
  }

  restore(): void {
    if (this.#outReason === undefined) return;
    this.#outReason = undefined;
    this.#changed();
  }

  /** Called after it went out, and after it came back. */
  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #changed(): void {
    for (const listener of [...this.#listeners]) listener();
  }
}

/**
 * Engines of one GPU open one after the other: TensorRT chooses its kernels by timing them while it
 * builds, and beside another engine's work it would time that too. CUDA's provider times nothing:
 * with cuDNN 9 its exhaustive search is a question to cuDNN's heuristics. As long as a line as
 * there are engines on the GPU.
 */
export class OpeningTurns {
  #holder: object | undefined;
  readonly #waiting: { readonly who: object; readonly begin: () => void }[] = [];

  /** `begin` is called once, now or when those before have left; never after `leave(who)`. */
  take(who: object, begin: () => void): void {
    this.leave(who);
    this.#waiting.push({ who, begin });
    this.#next();
  }

  /** Gives the turn on, or leaves the line. Does nothing for one that has neither. */
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
