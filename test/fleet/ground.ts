/** A fleet's database and storage, each of which can be killed. Needs: object-storage. */
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { sql } from 'kysely';
import { openDatabase } from '../../control-plane/database/connect.ts';
import { openStorage } from '../../control-plane/object-storage/test/open-storage.ts';
import type { BlobStore } from '../../control-plane/storage/blob-store.ts';
import { SILENT_LOG } from '../support/database.ts';
import { GaleraCluster } from '../support/databases/galera-cluster.ts';
import { WriterRouter } from '../support/databases/writer-router.ts';
import { MariadbServer } from '../support/mariadb-server.ts';
import { CREDENTIALS_ENV, createObjectStore } from '../support/object-storage/object-store.ts';
import type { Random } from '../support/random.ts';

const DATABASE = 'matting_chaos';
/** How long a server of the bucket's or a member of the cluster's is away, ms. */
const AWAY_MS = [200, 2000] as const;

export type GroundVictim = 'database' | 'store';

export interface Ground {
  /** Control planes get it: it names the two, and what lets them in. */
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

/** A Galera cluster of three behind a router to one writer, and a real bucket. */
export async function openSeveralMachines(): Promise<Ground> {
  await using opening = new AsyncDisposableStack();
  const cluster = await GaleraCluster.create();
  opening.defer(() => cluster.close());
  const router = await WriterRouter.open(cluster);
  opening.defer(() => router.close());
  const store = await createObjectStore('versitygw');
  opening.defer(() => store.close());
  const storageUrl = store.url({ prefix: 'chaos' });
  Object.assign(process.env, CREDENTIALS_ENV);
  const closing = opening.move();
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
      const member = random.pick(cluster.members);
      await member.kill();
      await delay(random.between(...AWAY_MS));
      // The member comes back with all it missed, so that the next may be another.
      await member?.join();
    },
    close: () => closing.disposeAsync(),
  };
}
