/**
 * Turns of loads that find no memory beside engines that always have an image. Only idle engines
 * give way to a load, so a model would wait for as long as the images of another overlap.
 *
 *   none   ──a load, refused for longer than any other, has been refused for TURN_AFTER_MS──►
 *   turn   what has to give way gets no other image, and ends those that it has
 *          ──the load begins, or nobody has asked for it for WANTED_MS, or TURN_MS_MAX──►
 *   none   for TURN_PAUSE_MS at least
 *
 * Engines that have just been loaded are no part of a turn, so that two models alternate.
 */
import type { EngineSet } from './engine-set.ts';

/** Engines that have an image now and then are idle within this time. */
const TURN_AFTER_MS = 5000;
/** A control plane asks again for a job that was refused within half of this. */
export const WANTED_MS = 5000;
/** Images that are in the engines end within this, or they hang. */
const TURN_MS_MAX = 30_000;
const TURN_PAUSE_MS = 10_000;
/** Engines serve for so long after their load, or for as long as the load took. */
const SERVED_MS_MIN = 10_000;

interface Turn {
  readonly name: string;
  readonly missing: readonly EngineSet[];
  readonly leaving: readonly EngineSet[];
  readonly endsAtMs: number;
}

export class LoadTurns {
  /** The key is the name of a refused load; the load that was refused first comes first. */
  readonly #wanted = new Map<string, { readonly sinceMs: number; readonly askedAtMs: number }>();
  #turn: Turn | undefined;
  #nextAtMs = Number.NEGATIVE_INFINITY;

  /** Tells whether an image must not enter these sets: they give way to a load. */
  haveToLeave(sets: readonly EngineSet[]): boolean {
    const leaving = this.#current()?.leaving ?? [];
    return leaving.some(set => sets.includes(set));
  }

  /**
   * Gives the engines that a load of `sets` must leave room for: those of the turn that are not in
   * `sets`.
   */
  keptFrom(sets: readonly EngineSet[]): readonly EngineSet[] {
    const missing = this.#current()?.missing ?? [];
    return missing.filter(set => set.state === 'unloaded' && !sets.includes(set));
  }

  /** Notes that its load is refused. Answers whether it is its turn, which then has to begin. */
  isDue(name: string): boolean {
    const nowMs = performance.now();
    const turn = this.#current();
    for (const [other, { askedAtMs }] of this.#wanted) {
      if (nowMs - askedAtMs >= WANTED_MS) this.#wanted.delete(other);
    }
    const { sinceMs } = this.#wanted.get(name) ?? { sinceMs: nowMs };
    this.#wanted.set(name, { sinceMs, askedAtMs: nowMs });
    const [longest] = this.#wanted.keys();
    if (turn !== undefined || longest !== name || nowMs < this.#nextAtMs) return false;
    return nowMs - sinceMs >= TURN_AFTER_MS;
  }

  /** @param missing what is to be loaded @param leaving what has to give way to it */
  begin(name: string, missing: readonly EngineSet[], leaving: readonly EngineSet[]): void {
    this.#turn = { name, missing, leaving, endsAtMs: performance.now() + TURN_MS_MAX };
  }

  /** An image of it has its engines, or their load begins. */
  entered(name: string): void {
    this.#wanted.delete(name);
    if (this.#turn?.name === name) this.#end();
  }

  #current(): Turn | undefined {
    const turn = this.#turn;
    if (turn === undefined) return undefined;
    const wanted = this.#wanted.get(turn.name);
    const nowMs = performance.now();
    const isWanted = wanted !== undefined && nowMs - wanted.askedAtMs < WANTED_MS;
    if (isWanted && nowMs < turn.endsAtMs) return turn;
    // The model waits again behind the others.
    this.#wanted.delete(turn.name);
    this.#end();
    return undefined;
  }

  #end(): void {
    this.#turn = undefined;
    this.#nextAtMs = performance.now() + TURN_PAUSE_MS;
  }
}

/** Tells whether the set has been loaded for long enough to give way to another load. */
export function hasServed({ servesSinceMs, loadMs }: EngineSet): boolean {
  if (servesSinceMs === undefined) return false;
  return performance.now() - servesSinceMs >= Math.max(SERVED_MS_MIN, loadMs);
}
