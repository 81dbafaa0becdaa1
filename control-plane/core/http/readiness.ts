/**
 * Whether this control plane can take work: what /readyz answers. Losing the nodes later does not
 * make it unready, since a restart of this process would not bring them back; the acceptance gate
 * then refuses new submissions.
 */
import { CachedValue } from '@matting/program/caches.ts';
import { settledWithin } from '@matting/program/waiting.ts';
import { isStorageFull } from '@matting/storage/blob-store.ts';

/** An answer is reused so long: many probes cost one check. */
const READINESS_CACHE_MS = 1000;
/** A dependency that has not answered by then counts as down. */
const CHECK_TIMEOUT_MS = 2000;

export const READINESS_CAUSES = [
  'draining',
  'database',
  'storage',
  'storage-full',
  'no-node-yet',
] as const;
export type ReadinessCause = (typeof READINESS_CAUSES)[number];

export type Readiness =
  | { readonly ready: true }
  | { readonly ready: false; readonly causes: readonly ReadinessCause[] };

interface Failed {
  readonly cause: ReadinessCause;
  readonly error?: unknown;
}

/** An empty list means that it is ready again. */
type OnChange = (failed: readonly Failed[]) => void;

interface ReadinessDependencies {
  readonly checkDatabase: () => Promise<void>;
  readonly checkStorage: () => Promise<void>;
  /** If it is absent, nodes come when there is work, and this process takes it. */
  readonly hasBeenRoutable?: (() => boolean) | undefined;
  readonly now?: () => number;
}

/** `onChange` is for the log: probes, which may come every second, see the causes' names only. */
export class ReadinessService {
  readonly #dependencies: ReadinessDependencies;
  readonly #onChange: OnChange;
  readonly #failed: CachedValue<Failed[]>;
  #told: readonly ReadinessCause[] = [];
  #draining = false;

  constructor(dependencies: ReadinessDependencies, onChange: OnChange) {
    this.#dependencies = dependencies;
    this.#onChange = onChange;
    this.#failed = new CachedValue(() => this.#checkNow(), READINESS_CACHE_MS, dependencies.now);
  }

  async check(): Promise<Readiness> {
    const failed: Failed[] = this.#draining ? [{ cause: 'draining' }] : [];
    failed.push(...(await this.#failed.get()));
    if (this.#dependencies.hasBeenRoutable?.() === false) failed.push({ cause: 'no-node-yet' });
    const causes = failed.map(({ cause }) => cause);
    if (causes.join() !== this.#told.join()) this.#onChange(failed);
    this.#told = causes;
    return causes.length === 0 ? { ready: true } : { ready: false, causes };
  }

  startDraining(): void {
    this.#draining = true;
  }

  get draining(): boolean {
    return this.#draining;
  }

  async #checkNow(): Promise<Failed[]> {
    const checks = [
      failureOf('database', this.#dependencies.checkDatabase),
      failureOf('storage', this.#dependencies.checkStorage),
    ];
    return (await Promise.all(checks)).filter(failed => failed !== undefined);
  }
}

async function failureOf(
  cause: ReadinessCause,
  check: () => Promise<void>,
): Promise<Failed | undefined> {
  try {
    const late = !(await settledWithin(check(), CHECK_TIMEOUT_MS));
    if (late) throw new Error(`no answer in ${CHECK_TIMEOUT_MS} ms`);
    return undefined;
  } catch (error) {
    return { cause: isStorageFull(error) ? 'storage-full' : cause, error };
  }
}
