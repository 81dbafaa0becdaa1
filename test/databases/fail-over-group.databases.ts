/** The primary of a group dies, or another is made primary, under load. */
import assert from 'node:assert/strict';
import ava from 'ava';
import {
  type GroupMember,
  groupSkipReason,
  ReplicationGroup,
} from '../support/databases/group-replication.ts';
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

async function primary(): Promise<GroupMember> {
  const member = await group.primary();
  assert.ok(member, 'the group has a primary');
  return member;
}

test('goes on when another member is made primary', async t => {
  const old = await primary();
  const next = group.members.find(member => member !== old);
  await t.notThrowsAsync(service.requireFailOver(t, async () => next?.promote()));
});

test('goes on when the primary is killed, and takes it back as a secondary', async t => {
  const old = await primary();
  await service.requireFailOver(t, () => old.kill());
  await t.notThrowsAsync(service.requireFailOver(t, () => old.join()));
});
