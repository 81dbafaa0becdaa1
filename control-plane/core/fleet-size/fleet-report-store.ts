/**
 * What the control planes measure of a fleet that sleeps, and how many nodes they want: a row a
 * process, written by it alone, so that saying it twice says it once. All read all rows: what they
 * make of them is the same. A row is fresh for FRESH_MS; an older one is a memory of the pace and
 * of what was wanted, for a process that starts, until another report removes it.
 */

import { nowPlusMs } from '../database/clock.ts';
import type { Database } from '../database/connect.ts';
import { query } from '../database/transact.ts';
import { isInserted, matchesOne } from '../database/values.ts';
import type { MeasuredWork } from './wanted-nodes.ts';

/** Several reports late: its process is gone, or cut off. */
const FRESH_MS = 30_000;
/**
 * Removed by the next report of any process. Where all are gone nobody removes the last ones,
 * however long the service stands still.
 */
const MEMORY_MS = 3_600_000;
/** Rows of an hour in which processes start again and again. */
const ROWS_MAX = 1000;
const PIXELS_PER_MEGAPIXEL = 1_000_000;

export interface FleetReport {
  /** Megapixels submitted to it a second, lately. */
  readonly inflowPerS: number;
  /** What the pace of a node follows from. */
  readonly work: MeasuredWork;
  /** What it would have. */
  readonly wantedNodes: number;
}

export interface StoredFleetReport extends FleetReport {
  readonly replica: string;
  /** By the database's clock. */
  readonly ageMs: number;
  readonly fresh: boolean;
}

export type FleetReportStore = ReturnType<typeof createFleetReportStore>;

export function createFleetReportStore(database: Database) {
  return {
    /** In place of its last one. */
    save: (replica: string, report: FleetReport) => save(database, replica, report),
    /** The newest first, ROWS_MAX at most. */
    list: () => list(database),
  };
}

async function save(database: Database, replica: string, report: FleetReport): Promise<void> {
  const { nowMs } = database;
  const values = {
    reported_at: nowMs,
    inflow_pixels: pixelsOf(report.inflowPerS),
    done_pixels: pixelsOf(report.work.megapixels),
    node_ms: Math.round(report.work.nodeMs),
    wanted_nodes: report.wantedNodes,
  };
  const update = () =>
    query(database, db =>
      matchesOne(db.updateTable('fleet_reports').set(values).where('replica', '=', replica)),
    );
  if (await update()) return;
  // Only a process's first report comes here: it forgets those of processes long gone.
  await query(database, db =>
    db
      .deleteFrom('fleet_reports')
      .where('reported_at', '<', nowPlusMs(nowMs, -MEMORY_MS))
      .execute(),
  );
  const row = { replica, ...values };
  const insert = query(database, db => db.insertInto('fleet_reports').values(row).execute());
  // It is there where an answer was lost.
  if (!(await isInserted(insert))) await update();
}

async function list(database: Database): Promise<StoredFleetReport[]> {
  const rows = await query(database, db =>
    db
      .selectFrom('fleet_reports')
      .selectAll()
      .select(() => database.nowMs.as('read_at'))
      .orderBy('reported_at', 'desc')
      .limit(ROWS_MAX)
      .execute(),
  );
  return rows.map(row => {
    const ageMs = Math.max(0, row.read_at - row.reported_at);
    return {
      replica: row.replica,
      ageMs,
      fresh: ageMs < FRESH_MS,
      inflowPerS: row.inflow_pixels / PIXELS_PER_MEGAPIXEL,
      work: { megapixels: row.done_pixels / PIXELS_PER_MEGAPIXEL, nodeMs: row.node_ms },
      wantedNodes: row.wanted_nodes,
    };
  });
}

function pixelsOf(megapixels: number): number {
  return Math.round(megapixels * PIXELS_PER_MEGAPIXEL);
}
