/** A Galera member dies, freezes or is shut down under load: the service goes on with the others. */
import { after, before, describe, it } from 'node:test';
import { at } from '../support/at.ts';
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { ServiceOnCluster } from './service-on-cluster.ts';

describe('a Galera cluster under load', { skip: galeraSkipReason() }, () => {
  let cluster: GaleraCluster;
  let service: ServiceOnCluster;

  before(async () => {
    cluster = await GaleraCluster.create();
    service = await ServiceOnCluster.start(cluster);
  });
  after(async () => {
    await service?.close();
    await cluster?.close();
  });

  it('goes on when a member is killed, and takes it back', async context => {
    const member = at(cluster.members, 0);
    await service.requireFailOver(context, () => member.kill());
    await service.requireFailOver(context, () => member.join());
  });

  it('goes on when a member freezes, is killed at last and comes back', async context => {
    const member = at(cluster.members, 1);
    await service.requireFailOver(context, async () => member.freeze());
    await service.requireFailOver(context, () => member.kill());
    await service.requireFailOver(context, () => member.join());
  });

  it('goes on when a member is shut down and started', async context => {
    const member = at(cluster.members, 2);
    await service.requireFailOver(context, () => member.stop());
    await service.requireFailOver(context, () => member.join());
  });
});
