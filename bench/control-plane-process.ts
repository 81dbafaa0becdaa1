/**
 * One control plane as it is started, without a node: submissions are taken and nothing is
 * dispatched. With a client that costs little and a caller who has credits.
 * Needs: portal.
 */

import { randomUUID } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createStores } from '../control-plane/core/stores.ts';
import { openDatabase } from '../control-plane/database/connect.ts';
import { SETTLED_STEPS } from '../control-plane/portal/settled-steps.ts';
import { SILENT_LOG } from '../test/support/database.ts';
import { Program } from '../test/support/program.ts';

const MAIN = path.join(import.meta.dirname, '../control-plane/main.ts');
const CREDITS = 100_000_000;

export interface ControlPlaneProcess {
  readonly origin: string;
  readonly databaseUrl: string;
  readonly accountId: string;
  readonly apiKeyId: string;
  headers(): Record<string, string>;
  /** The most memory it ever had resident, in bytes. */
  peakMemory(): number;
  /** Processor time it took so far. */
  cpuMs(): number;
  close(): Promise<void>;
}

/** @param databaseUrl undefined: a SQLite file in the data directory */
export async function startControlPlane(databaseUrl?: string): Promise<ControlPlaneProcess> {
  const directory = mkdtempSync(path.join(tmpdir(), 'matting-bench-'));
  const url = databaseUrl ?? `sqlite:${path.join(directory, 'matting.sqlite')}`;
  const program = new Program('control plane', [MAIN], {
    MATTING_DATA_DIR: directory,
    MATTING_DATABASE_URL: url,
    MATTING_SECRETS_KEY: 'ab'.repeat(32),
    MATTING_PORT: '0',
    MATTING_REGISTRY_PORT: '0',
    MATTING_METRICS_PORT: '0',
    MATTING_BASE_URL: 'http://127.0.0.1',
    MATTING_NODE_TOKEN: 'a-node-token-for-the-bench',
    MATTING_COMPAT: 'photoroom,rembg',
    MATTING_NO_NODE_GRACE_MS: '3600000',
    MATTING_JOBS_IN_FLIGHT_MAX: '1000000',
    MATTING_QUEUE_MEGAPIXELS_MAX: '1000000000',
    MATTING_SUBMISSIONS_PER_MINUTE: '100000000',
    MATTING_READS_PER_MINUTE: '100000000',
  });
  program.start();
  const { http: port } = await program.line<{ http: number }>('listening');
  const database = await openDatabase(url, { log: SILENT_LOG });
  const stores = createStores(database, { renderOutboxBody: () => '{}', settled: SETTLED_STEPS });
  const account = await stores.accounts.create('bench');
  if (account === undefined) throw new Error('the bench needs a database of its own');
  await stores.ledger.grant(account.id, CREDITS, 'bench');
  const { key, token } = await stores.apiKeys.create(account.id, 'bench');
  await stores.close();
  const { pid } = program;
  return {
    origin: `http://127.0.0.1:${port}`,
    databaseUrl: url,
    accountId: account.id,
    apiKeyId: key.id,
    headers: () => ({ authorization: `Bearer ${token}`, 'idempotency-key': randomUUID() }),
    peakMemory: () => 1024 * Number(/^VmHWM:\s+(\d+)/m.exec(proc(pid, 'status'))?.[1]),
    cpuMs: () => {
      // Fields 14 and 15, in ticks of 10 ms; the second may hold blanks.
      const stat = proc(pid, 'stat');
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return 10 * (Number(fields[11]) + Number(fields[12]));
    },
    close: async () => {
      await program.kill();
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

function proc(pid: number, name: string): string {
  return readFileSync(`/proc/${pid}/${name}`, 'utf8');
}
