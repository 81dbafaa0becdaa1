/** Records changes of this replica's view of the nodes, and otherwise renews its lease. */
import { pollingLoop, type RoundLoop } from '@matting/database/round-loop.ts';
import type { SightedNode, SightingStore } from './sighting-store.ts';

/** A state that lasts less than this may not be recorded. */
const ROUND_MS = 1000;
const SIGHTING_TIMING = { leaseMs: 30_000, renewMs: 10_000 };

interface NoteSightingsOptions {
  readonly replica: string;
  readonly seen: () => readonly SightedNode[];
  readonly store: Pick<SightingStore, 'note' | 'renew' | 'remove'>;
  /** Called for the first of consecutive failures. */
  readonly onFailed: (error: unknown) => void;
  readonly now?: () => number;
}

interface Since {
  readonly json: string;
  readonly atMs: number;
}

export class NoteSightings {
  readonly #options: NoteSightingsOptions;
  readonly #now: () => number;
  readonly #loop: RoundLoop;
  #since = new Map<string, Since>();
  /** undefined: the table has no row of this replica. */
  #noted: string | undefined;
  #writtenAtMs = 0;
  #failing = false;

  constructor(options: NoteSightingsOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const runRound = async () => {
      await this.runRound();
      this.#failing = false;
    };
    this.#loop = pollingLoop(ROUND_MS, runRound, error => {
      if (!this.#failing) options.onFailed(error);
      this.#failing = true;
    });
  }

  start(): void {
    this.#loop.start();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    const { store, replica, onFailed } = this.#options;
    if (this.#noted === undefined) return;
    this.#noted = undefined;
    await store.remove(replica).catch(onFailed);
  }

  /** Rejects if the database does not answer. The next round then writes the change. */
  async runRound(): Promise<void> {
    const { seen, store, replica } = this.#options;
    const { leaseMs, renewMs } = SIGHTING_TIMING;
    const nodes = seen();
    const nowMs = this.#now();
    this.#note(nodes, nowMs);
    const json = JSON.stringify(nodes);
    if (this.#noted === undefined && nodes.length === 0) return;
    if (json === this.#noted) {
      if (nowMs - this.#writtenAtMs < renewMs) return;
      const renewed = await store.renew(replica, leaseMs);
      this.#writtenAtMs = nowMs;
      if (renewed) return;
    }
    const stored = nodes.map(node => {
      const { atMs = nowMs } = this.#since.get(node.nodeId) ?? {};
      return { ...node, forMs: Math.round(nowMs - atMs) };
    });
    await store.note(replica, stored, leaseMs);
    this.#noted = json;
    this.#writtenAtMs = nowMs;
  }

  #note(nodes: readonly SightedNode[], nowMs: number): void {
    const before = this.#since;
    this.#since = new Map(
      nodes.map(node => {
        const json = JSON.stringify(node);
        const known = before.get(node.nodeId);
        return [node.nodeId, known?.json === json ? known : { json, atMs: nowMs }];
      }),
    );
  }
}
