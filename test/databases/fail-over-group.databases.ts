/** The primary of a group dies, or another is made primary, under load. */
import assert from 'node:assert/strict';
import ava from 'ava';
import { groupSkipReason, ReplicationGroup } from '../support/databases/group-replication.ts';
import { isNotTested } from '../support/skip.ts';
import { ServiceOnCluster } from './service-on-cluster.ts';

const test = ava.serial.skipIf(isNotTested(groupSkipReason()));

let group: ReplicationGroup;
let service: ServiceOnCluster;

ava.serial.before(async () => {
  group = await ReplicationGroup.create('single-primary');
  service = await ServiceOnCluster.start(group);
});
ava.serial.after.always(async () => {
  await service?.close();
  await group?.close();
});

test('goes on when another member is made primary', async t => {
  const { writer } = service;
  const next = group.members.find(member => member !== writer);
  assert.ok(next);
  await service.requireFailOver(t, () => next.promote());
  t.is(service.writer, next);
});

test('goes on when the primary is killed, and takes it back as a secondary', async t => {
  const { writer } = service;
  await service.requireFailOver(t, () => writer.kill());
  t.not(service.writer, writer);
  await service.requireFailOver(t, () => writer.join());
});
