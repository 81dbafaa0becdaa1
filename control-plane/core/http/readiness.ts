/**
 * A process stays ready if it loses all nodes, because a restart would not bring them back. The
 * acceptance gate then refuses submissions.
 */
import { CachedValue } from '@matting/program/caches.ts';
import { settledWithin } from '@matting/program/waiting.ts';
import { isStorageFull } from '@matting/storage/blob-store.ts';

/** Probes within this time share one check. */
const READINESS_CACHE_MS = 1000;
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

/** An empty list: ready again. */
type OnChange = (failed: readonly Failed[]) => void;

interface ReadinessDependencies {
  readonly checkDatabase: () => Promise<void>;
  readonly checkStorage: () => Promise<void>;
  /** Absent: nodes start when there is work. */
  readonly hasBeenRoutable?: (() => boolean) | undefined;
  readonly now?: () => number;
}

/** `onChange` gets the errors; probes see only names of causes. */
export class ReadinessService {
  readonly #dependencies: ReadinessDependencies;
  readonly #onChange: OnChange;
  readonly #failed: CachedValue<Failed[]>;
  #reported: readonly ReadinessCause[] = [];
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
    if (causes.join() !== this.#reported.join()) this.#onChange(failed);
    this.#reported = causes;
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
      runCheck('database', this.#dependencies.checkDatabase),
      runCheck('storage', this.#dependencies.checkStorage),
    ];
    return (await Promise.all(checks)).filter(failed => failed !== undefined);
  }
}

async function runCheck(
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
