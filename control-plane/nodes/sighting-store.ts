/**
 * Each replica's view of the nodes, for commands and pages in other processes: a row for each
 * replica, under a lease, with the database's times.
 *
 * | row     | entered by    | left by                                              |
 * |---------|---------------|------------------------------------------------------|
 * | current | note, renew   | the lease's end (to expired), remove                 |
 * | expired | the lease end | note, renew; removed when any replica notes a change |
 */
import { type Database, query } from '@matting/database/database.ts';
import { isInserted, matchesOne, nowPlusMs } from '@matting/database/statements.ts';
import type {} from './tables.ts';

/**
 * serving: the replica would send it an image. ejected: not for a while, after faults. starting,
 * draining, failed: as the node reports. unreachable: no call reaches it.
 */
const SIGHTED_STATES = [
  'serving',
  'ejected',
  'starting',
  'draining',
  'failed',
  'unreachable',
] as const;
export type SightedState = (typeof SIGHTED_STATES)[number];

export interface SightedNode {
  readonly nodeId: string;
  readonly bootId: string;
  readonly state: SightedState;
  /** In words. null: it is serving. */
  readonly cause: string | null;
}

export interface Sighting extends SightedNode {
  readonly replica: string;
  readonly sinceMs: number;
}

/** Content of the column `nodes`. `forMs` is how long the state had lasted when it was written. */
interface StoredNode extends SightedNode {
  readonly forMs: number;
}

/** Of replicas with a valid lease. */
export interface Sightings {
  readonly replicas: readonly string[];
  readonly all: readonly Sighting[];
}

export type SightingStore = ReturnType<typeof createSightingStore>;

export function createSightingStore(database: Database) {
  const { nowMs } = database;
  return {
    async note(replica: string, nodes: readonly StoredNode[], leaseMs: number): Promise<void> {
      await query(database, db =>
        db
          .deleteFrom('sightings')
          .where('expires_at', '<', nowPlusMs(nowMs, -leaseMs))
          .where('replica', '!=', replica)
          .execute(),
      );
      const columns = {
        nodes: JSON.stringify(nodes),
        noted_at: nowMs,
        expires_at: nowPlusMs(nowMs, leaseMs),
      };
      const update = () =>
        query(database, db =>
          matchesOne(db.updateTable('sightings').set(columns).where('replica', '=', replica)),
        );
      if (await update()) return;
      const row = { replica, ...columns };
      const insert = query(database, db => db.insertInto('sightings').values(row).execute());
      if (!(await isInserted(insert))) await update();
    },
    renew: (replica: string, leaseMs: number) =>
      query(database, db =>
        matchesOne(
          db
            .updateTable('sightings')
            .set({ expires_at: nowPlusMs(nowMs, leaseMs) })
            .where('replica', '=', replica),
        ),
      ),
    async remove(replica: string): Promise<void> {
      await query(database, db =>
        db.deleteFrom('sightings').where('replica', '=', replica).execute(),
      );
    },
    async list(): Promise<Sightings> {
      const rows = await query(database, db =>
        db
          .selectFrom('sightings')
          .select(['replica', 'nodes', 'noted_at as notedAtMs'])
          .where('expires_at', '>', nowMs)
          .orderBy('replica')
          .execute(),
      );
      return {
        replicas: rows.map(({ replica }) => replica),
        all: rows.flatMap(({ replica, nodes, notedAtMs }) =>
          (JSON.parse(nodes) as StoredNode[]).map(({ forMs, ...node }) => {
            return { ...node, replica, sinceMs: notedAtMs - forMs };
          }),
        ),
      };
    },
  };
}
