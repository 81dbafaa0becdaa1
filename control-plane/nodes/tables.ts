/**
 * The tables of nodes as Kysely sees them. The core's migrations make them. Times are UTC
 * milliseconds by the database's clock.
 */

interface NodesTable {
  node_id: string;
  boot_id: string;
  address: string;
  /** An empty text means that there is none. */
  http_address: string;
  version: string;
  registered_at: number;
  heartbeat_at: number;
  lease_expires_at: number;
  /** 0 or 1; the operator's, kept over restarts of the node. */
  draining: number;
  /** JSON: `StoredModels` in node-store.ts. */
  models: string | null;
}

/** A row a replica: what it sees of the nodes (sighting-store.ts). */
interface SightingsTable {
  replica: string;
  /** JSON: `StoredNode` of each. */
  nodes: string;
  noted_at: number;
  expires_at: number;
}

declare module '@matting/database/database.ts' {
  interface Schema {
    nodes: NodesTable;
    sightings: SightingsTable;
  }
}
