/**
 * The memory of engines beside the own plan's. It is counted from the moment a load is wanted until
 * the last process of it is gone, and pictures have what is left.
 *
 *   share    waiting ──room──► held ──leave()──► leaving ──release(), as its processes are gone
 *
 * A load begins in turn, once what leaves is gone and the pictures that are in fit beside it.
 * Images that wait for a load are admitted by what is left after it: they never keep it waiting.
 */
import { ContractError } from '@matting/proto/contract/errors.ts';
import { type Admission, budgetBeside, type MegapixelBudget, mostAlone } from '../admission.ts';

/** A killed process is gone within seconds; a process that stays is stuck. */
export const ROOM_WAIT_MAX_MS = 10_000;

const NONE: MegapixelBudget = { megapixelsMax: 0, megapixelsAloneMax: 0 };

interface MemoryFacts {
  readonly limitBytes: number;
  /** The memory of the own plan's engines. */
  readonly ownBytes: number;
}

export interface EngineShare {
  /** @throws ContractError NODE_SHORT_OF_MEMORY where there is none in time. */
  room(): Promise<void>;
  resize(bytes: number): void;
  /** The processes are being ended. */
  leave(): void;
  release(): void;
}

interface Share {
  bytes: number;
  state: 'waiting' | 'held' | 'leaving';
  started: PromiseWithResolvers<void>;
}

function waiting(bytes: number): Share {
  return { bytes, state: 'waiting', started: Promise.withResolvers() };
}

export class EngineMemory {
  readonly #facts: MemoryFacts;
  readonly #admission: Admission;
  readonly #shares = new Set<Share>();

  constructor(facts: MemoryFacts, admission: Admission) {
    this.#facts = facts;
    this.#admission = admission;
    admission.onChange(() => this.#startWaiting());
  }

  get limitBytes(): number {
    return this.#facts.limitBytes;
  }

  get ownBytes(): number {
    return this.#facts.ownBytes;
  }

  /** Gives the megapixels that are free for the next picture. */
  get megapixelsFree(): number {
    return this.#admission.snapshot().megapixelsFree;
  }

  /** Without what leaves. */
  get bytesWanted(): number {
    return this.#bytesOf(({ state }) => state !== 'leaving');
  }

  /** Returns undefined if not even an ordinary photo fits beside engines of so much more. */
  budgetBeside(bytes: number): MegapixelBudget | undefined {
    const { limits } = this.#admission;
    if (bytes === 0) return limits;
    const left = budgetBeside(this.#facts.ownBytes + bytes, this.#facts.limitBytes);
    return (
      left && {
        megapixelsMax: Math.min(left.megapixelsMax, limits.megapixelsMax),
        megapixelsAloneMax: Math.min(left.megapixelsAloneMax, limits.megapixelsAloneMax),
      }
    );
  }

  take(bytes: number): EngineShare {
    const share = waiting(bytes);
    this.#shares.add(share);
    this.#changed();
    return {
      room: () => this.#roomFor(share),
      resize: size => {
        Object.assign(share, waiting(size));
        this.#changed();
      },
      leave: () => {
        share.state = 'leaving';
        this.#changed();
      },
      release: () => {
        if (this.#shares.delete(share)) this.#changed();
      },
    };
  }

  async #roomFor(share: Share): Promise<void> {
    using _timer = setTimeout(() => {
      const detail = 'The memory for this model did not become free in time.';
      share.started.reject(new ContractError('NODE_SHORT_OF_MEMORY', detail));
    }, ROOM_WAIT_MAX_MS);
    await share.started.promise;
  }

  #bytesOf(counts: (share: Share) => boolean): number {
    return [...this.#shares].filter(counts).reduce((sum, { bytes }) => sum + bytes, 0);
  }

  /** The budget's change starts the loads that wait. */
  #changed(): void {
    this.#admission.setBudget(this.budgetBeside(this.#bytesOf(() => true)) ?? NONE);
  }

  #startWaiting(): void {
    for (const share of this.#shares) {
      if (share.state !== 'waiting') continue;
      const there = this.#bytesOf(({ state }) => state !== 'waiting');
      const budget = this.budgetBeside(there + share.bytes);
      const { images, megapixels } = this.#admission.snapshot();
      if (budget === undefined) return;
      if (megapixels > (images === 1 ? mostAlone(budget) : budget.megapixelsMax)) return;
      share.state = 'held';
      share.started.resolve();
    }
  }
}
