/** The suites of databases run on these: engines of several servers, and the ways to them. */
import type { DatabaseCluster } from '../support/databases/cluster.ts';
import { urlOfPort } from '../support/databases/cluster.ts';
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { groupSkipReason, ReplicationGroup } from '../support/databases/group-replication.ts';
import { roundRobin, TcpProxy } from '../support/databases/tcp-proxy.ts';

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
    name: 'galera-member',
    about: 'Galera, by one of its three members',
    engine: 'galera',
    skipReason: galeraSkipReason,
    open: async () => byMember(await GaleraCluster.create()),
  },
  {
    name: 'galera-round-robin',
    about: 'Galera, each connection to the next of three members',
    engine: 'galera',
    skipReason: galeraSkipReason,
    open: async () => byRoundRobin(await GaleraCluster.create()),
  },
  {
    name: 'group-primary',
    about: 'MySQL Group Replication, by the address of its primary',
    engine: 'mysql',
    skipReason: groupSkipReason,
    open: async () => byMember(await ReplicationGroup.create('single-primary')),
  },
  {
    name: 'group-round-robin',
    about: 'MySQL Group Replication, each connection to the next of three members, one the primary',
    engine: 'mysql',
    skipReason: groupSkipReason,
    open: async () => byRoundRobin(await ReplicationGroup.create('single-primary')),
  },
];

/** `<name>.databases.ts` each: they start servers of their own, to hurt them. */
export const OWN_TESTS: readonly Named[] = [
  {
    name: 'fail-over-galera',
    about: 'Galera members that die, freeze and are shut down under load',
    engine: 'galera',
    skipReason: galeraSkipReason,
  },
  {
    name: 'fail-over-group',
    about: 'MySQL Group Replication whose primary is switched and killed under load',
    engine: 'mysql',
    skipReason: groupSkipReason,
  },
  {
    name: 'refused-members',
    about: 'MySQL Group Replication with members that may not be written to',
    engine: 'mysql',
    skipReason: groupSkipReason,
  },
];

/** The first one, which is a group's primary. */
function byMember(cluster: DatabaseCluster): Opened {
  const [first] = cluster.members;
  if (first === undefined) throw new Error('a cluster has members');
  return { url: first.url, close: () => cluster.close() };
}

async function byRoundRobin(cluster: DatabaseCluster): Promise<Opened> {
  const proxy = await TcpProxy.open(roundRobin(cluster.members.map(({ port }) => port)));
  return {
    url: urlOfPort(proxy.port),
    close: async () => {
      await proxy.close();
      await cluster.close();
    },
  };
}
