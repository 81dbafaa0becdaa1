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
import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { databaseErrorKind } from '../database/database-errors.ts';
import type { Schema } from '../database/schema.ts';
import { query, readBack } from '../database/transact.ts';
import { isAsciiWord } from '../database/values.ts';

export interface NodeRegistration {
  readonly nodeId: string;
  readonly bootId: string;
  /** host:port of its MatteService. */
  readonly address: string;
  /** host:port of its metrics and health; empty: none. */
  readonly httpAddress: string;
  readonly version: string;
}

export interface NodeMember extends NodeRegistration {
  readonly registeredAtMs: number;
  readonly heartbeatAtMs: number;
  readonly leaseExpiresAtMs: number;
  readonly draining: boolean;
  /** Its lease had not ended when the row was read. */
  readonly live: boolean;
  /** It deregistered; false for one that only stopped its heartbeats. */
  readonly gone: boolean;
}

/** A fleet that names its nodes anew at every start would otherwise leave rows without end. */
const NODE_MEMORY_MS = 7 * 24 * 3_600_000;

/** In place of a lease's end. */
const DEREGISTERED = 0;

export class NodeStore {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Makes the node live, whatever boot was known. */
  async register(node: NodeRegistration, leaseMs: number): Promise<{ draining: boolean }> {
    await this.#forgetLongGone();
    if (!(await this.#update(node, leaseMs))) {
      try {
        await this.#insert(node, leaseMs);
      } catch (error) {
        if (databaseErrorKind(error) !== 'duplicate') throw error;
        // Another replica took the same node's registration just now; the later one counts.
        await this.#update(node, leaseMs);
      }
    }
    return { draining: (await this.find(node.nodeId))?.draining ?? false };
  }

  /** `known` false: this boot of the node is not the one registered, it must register anew. */
  async heartbeat(
    nodeId: string,
    bootId: string,
    leaseMs: number,
  ): Promise<{ known: boolean; draining: boolean }> {
    const { nowMs } = this.#database;
    const { numUpdatedRows } = await query(this.#database, db =>
      db
        .updateTable('nodes')
        .set({ heartbeat_at: nowMs, lease_expires_at: nowPlusMs(nowMs, leaseMs) })
        .where('node_id', '=', nodeId)
        .where('boot_id', '=', bootId)
        // One that was under way when its node deregistered must not bring it back.
        .where('lease_expires_at', '>', DEREGISTERED)
        .executeTakeFirstOrThrow(),
    );
    if (numUpdatedRows !== 1n) return { known: false, draining: false };
    const member = await this.find(nodeId);
    return { known: member?.bootId === bootId, draining: member?.draining ?? false };
  }

  /** Ends the membership at once. False: another boot is registered, or none. */
  async deregister(nodeId: string, bootId: string): Promise<boolean> {
    const { numUpdatedRows } = await query(this.#database, db =>
      db
        .updateTable('nodes')
        .set({ lease_expires_at: DEREGISTERED })
        .where('node_id', '=', nodeId)
        .where('boot_id', '=', bootId)
        .executeTakeFirstOrThrow(),
    );
    return numUpdatedRows === 1n;
  }

  /** By node id. */
  async listLive(): Promise<NodeMember[]> {
    return (await this.listAll()).filter(member => member.live);
  }

  /** By node id; the gone ones too. */
  async listAll(): Promise<NodeMember[]> {
    const rows = await query(this.#database, () => this.#select().orderBy('node_id').execute());
    return rows.map(memberFromRow);
  }

  /** False: no such node. */
  async setDraining(nodeId: string, draining: boolean): Promise<boolean> {
    if (!isAsciiWord(nodeId)) return false;
    const { numUpdatedRows } = await query(this.#database, db =>
      db
        .updateTable('nodes')
        .set({ draining: draining ? 1 : 0 })
        .where('node_id', '=', nodeId)
        .executeTakeFirstOrThrow(),
    );
    return numUpdatedRows === 1n;
  }

  /** In any state; undefined: no such node. */
  async find(nodeId: string): Promise<NodeMember | undefined> {
    if (!isAsciiWord(nodeId)) return undefined;
    const row = await readBack(this.#database, () =>
      this.#select().where('node_id', '=', nodeId).executeTakeFirst(),
    );
    return row && memberFromRow(row);
  }

  #select() {
    return this.#database.kysely
      .selectFrom('nodes')
      .selectAll()
      .select(() => this.#database.nowMs.as('read_at'));
  }

  #columns(node: NodeRegistration, leaseMs: number) {
    const { nowMs } = this.#database;
    return {
      boot_id: node.bootId,
      address: node.address,
      http_address: node.httpAddress,
      version: node.version,
      registered_at: nowMs,
      heartbeat_at: nowMs,
      lease_expires_at: nowPlusMs(nowMs, leaseMs),
    };
  }

  async #update(node: NodeRegistration, leaseMs: number): Promise<boolean> {
    const { numUpdatedRows } = await query(this.#database, db =>
      db
        .updateTable('nodes')
        .set(this.#columns(node, leaseMs))
        .where('node_id', '=', node.nodeId)
        .executeTakeFirstOrThrow(),
    );
    return numUpdatedRows === 1n;
  }

  async #insert(node: NodeRegistration, leaseMs: number): Promise<void> {
    await query(this.#database, db =>
      db
        .insertInto('nodes')
        .values({ node_id: node.nodeId, draining: 0, ...this.#columns(node, leaseMs) })
        .execute(),
    );
  }

  async #forgetLongGone(): Promise<void> {
    await query(this.#database, db =>
      db
        .deleteFrom('nodes')
        .where('draining', '=', 0)
        .where('lease_expires_at', '<', nowPlusMs(this.#database.nowMs, -NODE_MEMORY_MS))
        .execute(),
    );
  }
}

function memberFromRow(row: Schema['nodes'] & { read_at: number }): NodeMember {
  return {
    nodeId: row.node_id,
    bootId: row.boot_id,
    address: row.address,
    httpAddress: row.http_address,
    version: row.version,
    registeredAtMs: row.registered_at,
    heartbeatAtMs: row.heartbeat_at,
    leaseExpiresAtMs: row.lease_expires_at,
    draining: row.draining === 1,
    live: row.lease_expires_at > row.read_at,
    gone: row.lease_expires_at === DEREGISTERED,
  };
}
