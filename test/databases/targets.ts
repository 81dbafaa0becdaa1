import type { DatabaseCluster } from '../support/databases/cluster.ts';
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { groupSkipReason, ReplicationGroup } from '../support/databases/group-replication.ts';
import { WriterRouter } from '../support/databases/writer-router.ts';

export interface Named {
  readonly name: string;
  readonly about: string;
  readonly engine: 'galera' | 'mysql';
  readonly skipReason: () => string | false;
}

export interface Target extends Named {
  readonly open: () => Promise<Opened>;
}

export interface Opened {
  readonly url: string;
  close(): Promise<void>;
}

export const TARGETS: readonly Target[] = [
  {
    name: 'galera',
    about: 'Galera, by a router to one of its three members',
    engine: 'galera',
    skipReason: galeraSkipReason,
    open: async () => byRouter(await GaleraCluster.create()),
  },
  {
    name: 'group',
    about: 'MySQL Group Replication, by a router to its primary',
    engine: 'mysql',
    skipReason: groupSkipReason,
    open: async () => byRouter(await ReplicationGroup.create('single-primary')),
  },
];

/** `<name>.databases.ts`; each starts its own servers, to harm them. */
export const OWN_TESTS: readonly Named[] = [
  {
    name: 'refused-members',
    about: 'MySQL Group Replication with members that may not be written to',
    engine: 'mysql',
    skipReason: groupSkipReason,
  },
];

async function byRouter(cluster: DatabaseCluster): Promise<Opened> {
  const router = await WriterRouter.open(cluster);
  return {
    url: router.url,
    close: async () => {
      await router.close();
      await cluster.close();
    },
  };
}
