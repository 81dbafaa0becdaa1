/**
 * Membership of the inference nodes: one lease row a node, every replica reads and writes the same
 * table, every instant is the database's.
 *
 * | row      | entered by              | left by                                                  |
 * |----------|-------------------------|----------------------------------------------------------|
 * | live     | register, heartbeat     | the lease's end (to silent), deregister (to gone)        |
 * | silent   | the lease's end         | heartbeat, register; forgotten after NODE_MEMORY_MS      |
 * | gone     | deregister              | register; forgotten when any node registers              |
 *
 * The last boot id registered is the one that counts: a process that was replaced under its name
 * can neither renew nor end the membership of its successor. `draining` is the operator's: it
 * outlives the process and is never forgotten.
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
  /** host:port of its metrics and health; empty: none. */
  readonly httpAddress: string;
  readonly version: string;
}

export type NodeMember = ReturnType<typeof memberFromRow>;

/** A fleet that gives its nodes new names at every start would otherwise leave rows without end. */
const NODE_MEMORY_MS = 7 * 24 * 3_600_000;

const DEREGISTERED = 0;

export type NodeStore = ReturnType<typeof createNodeStore>;

export function createNodeStore(database: Database) {
  const { nowMs } = database;
  const changed = (change: (db: Db) => Parameters<typeof matchesOne>[0]) =>
    query(database, db => matchesOne(change(db)));
  /** Finds a node in any state; undefined: no such node. */
  const find = async (nodeId: string) => {
    if (!isAsciiWord(nodeId)) return undefined;
    const { rows } = await query(database, db => db.executeQuery(BY_ID(database, { nodeId })));
    return rows.map(memberFromRow)[0];
  };
  /** Lists all nodes by node id, even those that are gone. */
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
    /** If `known` is false, this boot of the node must register again: another is registered. */
    async heartbeat(nodeId: string, bootId: string, leaseMs: number) {
      const isKnown = await changed(db =>
        db
          .updateTable('nodes')
          .set({ heartbeat_at: nowMs, lease_expires_at: nowPlusMs(nowMs, leaseMs) })
          .where('node_id', '=', nodeId)
          .where('boot_id', '=', bootId)
          // A heartbeat that was under way when its node deregistered must not bring it back.
          .where('lease_expires_at', '>', DEREGISTERED),
      );
      if (!isKnown) return { known: false, draining: false };
      const member = await find(nodeId);
      return { known: member?.bootId === bootId, draining: member?.draining ?? false };
    },
    /** Ends the membership at once. False: another boot is registered, or none. */
    deregister: (nodeId: string, bootId: string) =>
      changed(db =>
        db
          .updateTable('nodes')
          .set({ lease_expires_at: DEREGISTERED })
          .where('node_id', '=', nodeId)
          .where('boot_id', '=', bootId),
      ),
    /** Keeps the models that this boot reports. False: another boot is registered, or none. */
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
  // Another replica took the same node's registration just now; the later one counts.
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

/** The column `models` has this form: a boot that follows writes its own. */
interface StoredModels {
  readonly bootId: string;
  readonly models: readonly NamedSum[];
  /** Absent in a row that an older control plane wrote. */
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
    /** The node deregistered; it is false for a node that only stopped its heartbeats. */
    gone: leaseExpiresAtMs === DEREGISTERED,
    /** Requests may name these there; null: no replica has read them yet. */
    models: isOfBoot ? (models ?? null) : null,
    /** The processor of its models, for people; null: nobody read it yet. */
    runsOn: isOfBoot ? (runsOn ?? null) : null,
  };
}
