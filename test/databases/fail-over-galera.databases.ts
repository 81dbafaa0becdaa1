/** The Galera member that takes the writes dies, freezes or is shut down under load. */
import ava from 'ava';
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

test('goes on when the writer is killed, and takes it back', async t => {
  const { writer } = service;
  await service.requireFailOver(t, () => writer.kill());
  t.not(service.writer, writer);
  await service.requireFailOver(t, () => writer.join());
});

test('goes on when the writer freezes, is killed at last and comes back', async t => {
  const { writer } = service;
  await service.requireFailOver(t, async () => writer.freeze());
  t.not(service.writer, writer);
  await service.requireFailOver(t, () => writer.kill());
  await service.requireFailOver(t, () => writer.join());
});

test('goes on when the writer is shut down and started', async t => {
  const { writer } = service;
  await service.requireFailOver(t, () => writer.stop());
  t.not(service.writer, writer);
  await service.requireFailOver(t, () => writer.join());
});
