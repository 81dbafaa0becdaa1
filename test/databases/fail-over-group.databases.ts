/** The primary of a group dies, or another is made primary, under load. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import {
  type GroupMember,
  groupSkipReason,
  ReplicationGroup,
} from '../support/databases/group-replication.ts';
import { ServiceOnCluster } from './service-on-cluster.ts';

describe('a replication group under load', { skip: groupSkipReason() }, () => {
  let group: ReplicationGroup;
  let service: ServiceOnCluster;

  before(async () => {
    group = await ReplicationGroup.create('single-primary');
    service = await ServiceOnCluster.start(group);
  });
  after(async () => {
    await service?.close();
    await group?.close();
  });

  async function primary(): Promise<GroupMember> {
    const member = await group.primary();
    assert.ok(member, 'the group has a primary');
    return member;
  }

  it('goes on when another member is made primary', async context => {
    const old = await primary();
    const next = group.members.find(member => member !== old);
    await service.requireFailOver(context, async () => next?.promote());
  });

  it('goes on when the primary is killed, and takes it back as a secondary', async context => {
    const old = await primary();
    await service.requireFailOver(context, () => old.kill());
    await service.requireFailOver(context, () => old.join());
  });
});
