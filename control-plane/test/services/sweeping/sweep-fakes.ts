/** The rows and the lease of a sweep in memory, for the tests of the sweeper. */
import type { SweepClaim, SweepWalk } from '../../../src/store/cluster/sweep-store.ts';
import type { RemovedJobs } from '../../../src/store/jobs/job-retention.ts';

/** Rows as the sweeper sees them: what expired, what is old, what is referred to. */
export class Rows {
  expired: string[] = [];
  secretsDue = 0;
  old = 0;
  /** Results that old rows still name. */
  named: string[] = [];
  readonly referenced = new Set<string>();
  readonly lifetimes: number[] = [];
  asked = 0;

  async takeExpiredResultBlobs(limit: number): Promise<string[]> {
    return this.expired.splice(0, limit);
  }

  async eraseDueSecrets(limit: number): Promise<number> {
    const erased = Math.min(limit, this.secretsDue);
    this.secretsDue -= erased;
    return erased;
  }

  async removeFinalOlderThan(afterMs: number, limit: number): Promise<RemovedJobs> {
    this.lifetimes.push(afterMs);
    const rows = Math.min(limit, this.old);
    this.old -= rows;
    return { rows, blobs: this.named.splice(0, limit) };
  }

  async referencedBlobs(names: readonly string[]): Promise<Set<string>> {
    this.asked += 1;
    return new Set(names.filter(name => this.referenced.has(name)));
  }
}

/** The row of the sweeps: one lease, and where the walk stands. */
export class Lease {
  holder: string | undefined;
  fence = 0;
  walk: SweepWalk = { part: 0, ageMs: null };

  async claim(holder: string) {
    if (this.holder !== undefined) return undefined;
    this.holder = holder;
    this.fence += 1;
    return { claim: { holder, fence: this.fence }, walk: this.walk };
  }

  async renew({ fence }: SweepClaim): Promise<boolean> {
    return fence === this.fence;
  }

  async release({ fence }: SweepClaim): Promise<boolean> {
    if (fence === this.fence) this.holder = undefined;
    return fence === this.fence;
  }

  async saveWalk({ fence }: SweepClaim, part: number): Promise<boolean> {
    if (fence === this.fence) this.walk = { part, ageMs: 0 };
    return fence === this.fence;
  }
}

export const emptyStore = {
  remove: async () => undefined,
  async *listOlderThan(): AsyncGenerator<string> {
    yield* [];
  },
};

/** Lets everything that is ready run. */
export async function settle(): Promise<void> {
  for (let i = 0; i < 5; i += 1) await new Promise(resolve => setImmediate(resolve));
}
