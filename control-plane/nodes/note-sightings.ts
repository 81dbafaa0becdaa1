/**
 * Writes down what this replica sees of the nodes, so that commands, pages and the doctor say what
 * callers meet. It writes when something changes and otherwise only renews its lease, and it writes
 * nothing while it knows no node.
 */
import { pollingLoop, type RoundLoop } from '@matting/database/round-loop.ts';
import type { SightedNode, SightingStore } from './sighting-store.ts';

/** A shorter change is not worth a write. */
const LOOK_MS = 1000;
const SIGHTING_TIMING = { leaseMs: 30_000, renewMs: 10_000 };

interface NoteSightingsOptions {
  readonly replica: string;
  readonly seen: () => readonly SightedNode[];
  readonly store: Pick<SightingStore, 'note' | 'renew' | 'remove'>;
  /** Reports the first of failures in a row: every round of an outage would repeat it. */
  readonly onFailed: (error: unknown) => void;
  readonly now?: () => number;
}

interface Since {
  readonly said: string;
  readonly atMs: number;
}

export class NoteSightings {
  readonly #options: NoteSightingsOptions;
  readonly #now: () => number;
  readonly #loop: RoundLoop;
  #since = new Map<string, Since>();
  /** The text last written; undefined: the table has nothing of this replica. */
  #noted: string | undefined;
  #writtenAtMs = 0;
  #failing = false;

  constructor(options: NoteSightingsOptions) {
    this.#options = options;
    this.#now = options.now ?? (() => performance.now());
    const look = async () => {
      await this.look();
      this.#failing = false;
    };
    this.#loop = pollingLoop(LOOK_MS, look, error => {
      if (!this.#failing) options.onFailed(error);
      this.#failing = true;
    });
  }

  start(): void {
    this.#loop.start();
  }

  /** Stops, and takes this replica's sightings back: it sees nothing any more. */
  async stop(): Promise<void> {
    await this.#loop.stop();
    const { store, replica, onFailed } = this.#options;
    if (this.#noted === undefined) return;
    this.#noted = undefined;
    await store.remove(replica).catch(onFailed);
  }

  /** Runs one round. Rejects if the database does not answer; the next round writes it then. */
  async look(): Promise<void> {
    const { seen, store, replica } = this.#options;
    const { leaseMs, renewMs } = SIGHTING_TIMING;
    const nodes = seen();
    const nowMs = this.#now();
    this.#note(nodes, nowMs);
    const said = JSON.stringify(nodes);
    if (this.#noted === undefined && nodes.length === 0) return;
    if (said === this.#noted) {
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
    this.#noted = said;
    this.#writtenAtMs = nowMs;
  }

  #note(nodes: readonly SightedNode[], nowMs: number): void {
    const before = this.#since;
    this.#since = new Map(
      nodes.map(node => {
        const said = JSON.stringify(node);
        const known = before.get(node.nodeId);
        return [node.nodeId, known?.said === said ? known : { said, atMs: nowMs }];
      }),
    );
  }
}
