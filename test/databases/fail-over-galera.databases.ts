/** A Galera member dies, freezes or is shut down under load: the service goes on with the others. */
import ava from 'ava';
import { at } from '../support/at.ts';
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { ServiceOnCluster } from './service-on-cluster.ts';

const test = ava.serial;

let cluster: GaleraCluster;
let service: ServiceOnCluster;

test.before(async () => {
  cluster = await GaleraCluster.create();
  service = await ServiceOnCluster.start(cluster);
});
test.after.always(async () => {
  await service?.close();
  await cluster?.close();
});

test.skipIf(Boolean(galeraSkipReason()))(
  'goes on when a member is killed, and takes it back',
  async t => {
    const member = at(cluster.members, 0);
    await service.requireFailOver(t, () => member.kill());
    await t.notThrowsAsync(service.requireFailOver(t, () => member.join()));
  },
);

test.skipIf(Boolean(galeraSkipReason()))(
  'goes on when a member freezes, is killed at last and comes back',
  async t => {
    const member = at(cluster.members, 1);
    await service.requireFailOver(t, async () => member.freeze());
    await service.requireFailOver(t, () => member.kill());
    await t.notThrowsAsync(service.requireFailOver(t, () => member.join()));
  },
);

test.skipIf(Boolean(galeraSkipReason()))(
  'goes on when a member is shut down and started',
  async t => {
    const member = at(cluster.members, 2);
    await service.requireFailOver(t, () => member.stop());
    await t.notThrowsAsync(service.requireFailOver(t, () => member.join()));
  },
);
