/**
 * A GPU that engines of this node run on. It is up or out; what is out takes the engines on it
 * down, in every pool, and no other.
 *
 *   up ──its engines keep dying, or CUDA or the driver say that it is gone──► out
 *   out ──device-watch.ts found that it runs again──► up
 */
import type { GpuFacts } from './nvidia-smi.ts';
import { OpeningTurns } from './opening-turns.ts';

export class GpuDevice {
  readonly facts: GpuFacts;
  readonly turns = new OpeningTurns();
  readonly #listeners = new Set<() => void>();
  readonly #suspecters = new Set<() => void>();
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

  /** An engine on it was lost: whoever can ask the driver may want to. */
  suspect(): void {
    for (const suspecter of [...this.#suspecters]) suspecter();
  }

  onSuspicion(suspecter: () => void): () => void {
    this.#suspecters.add(suspecter);
    return () => this.#suspecters.delete(suspecter);
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
