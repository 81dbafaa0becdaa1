/**
 * Whether this control plane can take work: what /readyz answers. Losing the nodes later does not
 * make it unready, since a restart of this process would not bring them back; the acceptance gate
 * then refuses new submissions.
 */
import { Remembered } from '@matting/program/remembered.ts';
import { settledWithin } from '@matting/program/waiting.ts';

/** How long an answer is reused: many probes cost one check. */
const READINESS_CACHE_MS = 1000;
/** A dependency that has not answered by then counts as down. */
const CHECK_TIMEOUT_MS = 2000;

export const READINESS_CAUSES = ['draining', 'database', 'storage', 'no-node-yet'] as const;
export type ReadinessCause = (typeof READINESS_CAUSES)[number];

export type Readiness =
  | { readonly ready: true }
  | { readonly ready: false; readonly causes: readonly ReadinessCause[] };

export interface ReadinessDependencies {
  readonly checkDatabase: () => Promise<void>;
  readonly checkStorage: () => Promise<void>;
  /** Absent: nodes come when there is work, and it is this process that takes it. */
  readonly hasBeenRoutable?: (() => boolean) | undefined;
  readonly now?: () => number;
}

/** `onFailure` gets a failed check's error for the log; probes see the cause's name only. */
export class ReadinessService {
  readonly #dependencies: ReadinessDependencies;
  readonly #onFailure: (cause: ReadinessCause, error: unknown) => void;
  readonly #failed: Remembered<ReadinessCause[]>;
  #draining = false;

  constructor(
    dependencies: ReadinessDependencies,
    onFailure: (cause: ReadinessCause, error: unknown) => void,
  ) {
    this.#dependencies = dependencies;
    this.#onFailure = onFailure;
    this.#failed = new Remembered(() => this.#checkNow(), READINESS_CACHE_MS, dependencies.now);
  }

  async check(): Promise<Readiness> {
    const causes: ReadinessCause[] = this.#draining ? ['draining'] : [];
    causes.push(...(await this.#failed.get()));
    if (this.#dependencies.hasBeenRoutable?.() === false) causes.push('no-node-yet');
    return causes.length === 0 ? { ready: true } : { ready: false, causes };
  }

  startDraining(): void {
    this.#draining = true;
  }

  get draining(): boolean {
    return this.#draining;
  }

  async #checkNow(): Promise<ReadinessCause[]> {
    const checks = [
      this.#one('database', this.#dependencies.checkDatabase),
      this.#one('storage', this.#dependencies.checkStorage),
    ];
    const failed = await Promise.all(checks);
    return failed.filter(cause => cause !== undefined);
  }

  async #one(
    cause: ReadinessCause,
    check: () => Promise<void>,
  ): Promise<ReadinessCause | undefined> {
    try {
      const late = !(await settledWithin(check(), CHECK_TIMEOUT_MS));
      if (late) throw new Error(`no answer in ${CHECK_TIMEOUT_MS} ms`);
      return undefined;
    } catch (error) {
      this.#onFailure(cause, error);
      return cause;
    }
  }
}
