/** A Galera member dies, freezes or is shut down under load: the service goes on with the others. */
import ava from 'ava';
import { at } from '../support/at.ts';
import { GaleraCluster, galeraSkipReason } from '../support/databases/galera-cluster.ts';
import { isNotTested } from '../support/skip.ts';
import { ServiceOnCluster } from './service-on-cluster.ts';

const test = ava.serial.skipIf(isNotTested(galeraSkipReason()));

let cluster: GaleraCluster;
let service: ServiceOnCluster;

ava.serial.before(async () => {
  cluster = await GaleraCluster.create();
  service = await ServiceOnCluster.start(cluster);
});
ava.serial.after.always(async () => {
  await service?.close();
  await cluster?.close();
});

test('goes on when a member is killed, and takes it back', async t => {
  const member = at(cluster.members, 0);
  await service.requireFailOver(t, () => member.kill());
  await t.notThrowsAsync(service.requireFailOver(t, () => member.join()));
});

test('goes on when a member freezes, is killed at last and comes back', async t => {
  const member = at(cluster.members, 1);
  await service.requireFailOver(t, async () => member.freeze());
  await service.requireFailOver(t, () => member.kill());
  await t.notThrowsAsync(service.requireFailOver(t, () => member.join()));
});

test('goes on when a member is shut down and started', async t => {
  const member = at(cluster.members, 2);
  await service.requireFailOver(t, () => member.stop());
  await t.notThrowsAsync(service.requireFailOver(t, () => member.join()));
});
