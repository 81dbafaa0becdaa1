/** A database and a storage that can be killed. Needs: object-storage. */
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import { openDatabase } from '../../control-plane/database/connect.ts';
import { openStorage } from '../../control-plane/object-storage/test/open-storage.ts';
import type { BlobStore } from '../../control-plane/storage/blob-store.ts';
import { at } from '../support/at.ts';
import { SILENT_LOG } from '../support/database.ts';
import type { ClusterMember, DatabaseCluster } from '../support/databases/cluster.ts';
import { WriterRouter } from '../support/databases/writer-router.ts';
import { MariadbServer } from '../support/mariadb-server.ts';
import { CREDENTIALS_ENV, createObjectStore } from '../support/object-storage/object-store.ts';
import type { Random } from '../support/random.ts';

const DATABASE = 'matting_chaos';
const AWAY_MS = [200, 2000] as const;

export type GroundVictim = 'database' | 'store';

export interface Ground {
  /** Addresses and credentials, for control planes. */
  readonly env: Readonly<Record<string, string>>;
  readonly databaseUrl: string;
  openStorage(): Promise<BlobStore>;
  kill(victim: GroundVictim, random: Random): Promise<void>;
  close(): Promise<void>;
}

export async function openOneFile(directory: string): Promise<Ground> {
  return {
    env: {},
    databaseUrl: `sqlite:${path.join(directory, 'matting.sqlite')}`,
    openStorage: () => openStorage(directory),
    kill: async victim => {
      throw new Error(`a ${victim} of one file cannot be killed`);
    },
    close: async () => undefined,
  };
}

export async function openOneMachine(directory: string): Promise<Ground> {
  const server = await MariadbServer.create();
  const urlOf = (name: string) =>
    `mysql://root@localhost/${name}?socket=${encodeURIComponent(server.socket)}`;
  const database = await openDatabase(urlOf('mysql'), { log: SILENT_LOG });
  try {
    await sql.raw(`create database ${DATABASE}`).execute(database.kysely);
  } finally {
    await database.close();
  }
  return {
    env: {},
    databaseUrl: urlOf(DATABASE),
    openStorage: () => openStorage(directory),
    kill: async victim => {
      if (victim === 'store') throw new Error('a directory cannot be killed');
      await server.kill();
      await server.start();
    },
    close: () => server.kill(),
  };
}

/** By then cluster and router have dropped a frozen member, which is killed. */
const FROZEN_MS = 10_000;

/** Ways in which a member leaves or stops taking writes. */
const LEAVES: readonly ((member: ClusterMember) => Promise<void>)[] = [
  member => member.kill(),
  member => member.stop(),
  async member => {
    member.freeze();
    await delay(FROZEN_MS);
    await member.kill();
  },
];

/** A cluster behind a router to one writer, and a real bucket. */
export async function openSeveralMachines(
  openCluster: () => Promise<DatabaseCluster>,
): Promise<Ground> {
  await using opening = new AsyncDisposableStack();
  const cluster = await openCluster();
  opening.defer(() => cluster.close());
  const router = await WriterRouter.open(cluster);
  opening.defer(() => router.close());
  const store = await createObjectStore('versitygw');
  opening.defer(() => store.close());
  const storageUrl = store.url({ prefix: 'chaos' });
  Object.assign(process.env, CREDENTIALS_ENV);
  const closing = opening.move();
  let ends = 0;
  return {
    env: { ...CREDENTIALS_ENV, MATTING_STORAGE_URL: storageUrl },
    databaseUrl: router.url,
    openStorage: () => openStorage(storageUrl),
    kill: async (victim, random) => {
      if (victim === 'store') {
        await store.kill();
        await delay(random.between(...AWAY_MS));
        await store.start();
        return;
      }
      const next = random.pick(cluster.members.filter(member => member !== router.writer));
      const leaves = [...LEAVES, ...(next.promote ? [() => next.promote!()] : [])];
      const { writer } = router;
      // In turn, so that even few ends cover all.
      await at(leaves, ends++ % leaves.length)(writer);
      if (writer.process.running) return;
      await delay(random.between(...AWAY_MS));
      // It catches up first, so that the next may be another.
      await writer.join();
    },
    close: () => closing.disposeAsync(),
  };
}
