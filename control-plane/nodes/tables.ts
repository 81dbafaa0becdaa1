/** The core's migrations create these tables. Times are UTC ms of the database's clock. */

interface NodesTable {
  node_id: string;
  boot_id: string;
  address: string;
  /** Empty: none. */
  http_address: string;
  version: string;
  registered_at: number;
  heartbeat_at: number;
  lease_expires_at: number;
  /** 0 or 1, set by the operator, kept over restarts of the node. */
  draining: number;
  /** JSON: `StoredModels` in node-store.ts. */
  models: string | null;
}

/** A row for each replica (sighting-store.ts). */
interface SightingsTable {
  replica: string;
  /** JSON: an array of `StoredNode`. */
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
