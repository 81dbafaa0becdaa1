/**
 * Membership of the nodes: a lease row for each node, shared by all replicas, with the database's
 * times.
 *
 * | row      | entered by              | left by                                                  |
 * |----------|-------------------------|----------------------------------------------------------|
 * | live     | register, heartbeat     | the lease's end (to silent), deregister (to gone)        |
 * | silent   | the lease's end         | heartbeat, register; forgotten after NODE_MEMORY_MS      |
 * | gone     | deregister              | register; forgotten when any node registers              |
 *
 * The last registered boot id counts: a replaced process can neither renew nor end the membership
 * of its successor. `draining` belongs to the operator, outlives the process and is never
 * forgotten.
 */

import { type Database, type Db, query } from '@matting/database/database.ts';
import {
  isAsciiWord,
  isInserted,
  keepStatement,
  matchesOne,
  nowPlusMs,
} from '@matting/database/statements.ts';
import type { NamedSum } from './selectable.ts';
import type {} from './tables.ts';

interface NodeRegistration {
  readonly nodeId: string;
  readonly bootId: string;
  readonly address: string;
  /** host:port of its metrics and health. Empty: none. */
  readonly httpAddress: string;
  readonly version: string;
}

export type NodeMember = ReturnType<typeof memberFromRow>;

/** Bounds the rows of a fleet whose nodes have new names at every start. */
const NODE_MEMORY_MS = 7 * 24 * 3_600_000;

const DEREGISTERED = 0;

export type NodeStore = ReturnType<typeof createNodeStore>;

export function createNodeStore(database: Database) {
  const { nowMs } = database;
  const changed = (change: (db: Db) => Parameters<typeof matchesOne>[0]) =>
    query(database, db => matchesOne(change(db)));
  const find = async (nodeId: string) => {
    if (!isAsciiWord(nodeId)) return undefined;
    const { rows } = await query(database, db => db.executeQuery(BY_ID(database, { nodeId })));
    return rows.map(memberFromRow)[0];
  };
  const listAll = async () => {
    const { rows } = await query(database, db => db.executeQuery(ALL(database, {})));
    return rows.map(memberFromRow);
  };
  return {
    find,
    listAll,
    listLive: async () => (await listAll()).filter(member => member.live),
    async register(node: NodeRegistration, leaseMs: number): Promise<{ draining: boolean }> {
      await forgetLongGone(database);
      await write(database, node, leaseMs);
      return { draining: (await find(node.nodeId))?.draining ?? false };
    },
    /** `known` is false if another boot is registered. */
    async heartbeat(nodeId: string, bootId: string, leaseMs: number) {
      const isKnown = await changed(db =>
        db
          .updateTable('nodes')
          .set({ heartbeat_at: nowMs, lease_expires_at: nowPlusMs(nowMs, leaseMs) })
          .where('node_id', '=', nodeId)
          .where('boot_id', '=', bootId)
          // A late heartbeat must not bring back a deregistered node.
          .where('lease_expires_at', '>', DEREGISTERED),
      );
      if (!isKnown) return { known: false, draining: false };
      const member = await find(nodeId);
      return { known: member?.bootId === bootId, draining: member?.draining ?? false };
    },
    /** False if another boot is registered, or none. */
    deregister: (nodeId: string, bootId: string) =>
      changed(db =>
        db
          .updateTable('nodes')
          .set({ lease_expires_at: DEREGISTERED })
          .where('node_id', '=', nodeId)
          .where('boot_id', '=', bootId),
      ),
    /** False as for `deregister`. */
    noteModels: (nodeId: string, bootId: string, models: readonly NamedSum[], runsOn?: string) =>
      changed(db =>
        db
          .updateTable('nodes')
          .set({ models: JSON.stringify({ bootId, models, runsOn } satisfies StoredModels) })
          .where('node_id', '=', nodeId)
          .where('boot_id', '=', bootId),
      ),
    async setDraining(nodeId: string, draining: boolean): Promise<boolean> {
      if (!isAsciiWord(nodeId)) return false;
      const columns = { draining: draining ? 1 : 0 };
      return changed(db => db.updateTable('nodes').set(columns).where('node_id', '=', nodeId));
    },
  };
}

function selectNodes({ nowMs, kysely }: Database) {
  return kysely
    .selectFrom('nodes')
    .select(['node_id as nodeId', 'boot_id as bootId', 'address', 'http_address as httpAddress'])
    .select(['version', 'registered_at as registeredAtMs', 'heartbeat_at as heartbeatAtMs'])
    .select(['lease_expires_at as leaseExpiresAtMs', 'draining', 'models', nowMs.as('readAtMs')]);
}

type NodeRow = Awaited<ReturnType<ReturnType<typeof selectNodes>['executeTakeFirstOrThrow']>>;

const ALL = keepStatement(database => selectNodes(database).orderBy('node_id'));
const BY_ID = keepStatement((database, { nodeId }: { nodeId: string }) =>
  selectNodes(database).where('node_id', '=', nodeId),
);

async function write(database: Database, node: NodeRegistration, leaseMs: number) {
  const { nowMs } = database;
  const columns = {
    boot_id: node.bootId,
    address: node.address,
    http_address: node.httpAddress,
    version: node.version,
    registered_at: nowMs,
    heartbeat_at: nowMs,
    lease_expires_at: nowPlusMs(nowMs, leaseMs),
  };
  const { nodeId } = node;
  const update = () =>
    query(database, db =>
      matchesOne(db.updateTable('nodes').set(columns).where('node_id', '=', nodeId)),
    );
  if (await update()) return;
  const row = { node_id: nodeId, draining: 0, ...columns };
  const insert = query(database, db => db.insertInto('nodes').values(row).execute());
  // Another replica inserted the node just now. The later registration counts.
  if (!(await isInserted(insert))) await update();
}

async function forgetLongGone(database: Database): Promise<void> {
  const longAgo = nowPlusMs(database.nowMs, -NODE_MEMORY_MS);
  await query(database, db =>
    db
      .deleteFrom('nodes')
      .where('draining', '=', 0)
      .where('lease_expires_at', '<', longAgo)
      .execute(),
  );
}

/** Content of the column `models`. It counts only for the boot that it names. */
interface StoredModels {
  readonly bootId: string;
  readonly models: readonly NamedSum[];
  /** Absent in rows from an older control plane. */
  readonly runsOn?: string | undefined;
}

function memberFromRow({ draining, readAtMs, models: column, ...node }: NodeRow) {
  const { leaseExpiresAtMs } = node;
  const { bootId, models, runsOn }: Partial<StoredModels> = JSON.parse(column ?? '{}');
  const isOfBoot = bootId === node.bootId;
  return {
    ...node,
    draining: draining === 1,
    live: leaseExpiresAtMs > readAtMs,
    /** Deregistered, not only silent. */
    gone: leaseExpiresAtMs === DEREGISTERED,
    /** null: no replica has read them yet. */
    models: isOfBoot ? (models ?? null) : null,
    /** The processor of its models, for people. null: not read yet. */
    runsOn: isOfBoot ? (runsOn ?? null) : null,
  };
}
