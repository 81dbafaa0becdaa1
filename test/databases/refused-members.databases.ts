/** Members of a group that may not be written to: who starts on one is told, who comes by one goes on. */
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { DatabaseOpenError, openDatabase } from '../../control-plane/src/store/database/connect.ts';
import { storesOn } from '../../control-plane/test/store/fixtures.ts';
import { at } from '../support/at.ts';
import { createTestDatabase, SILENT_LOG } from '../support/database.ts';
import { urlOfPort } from '../support/databases/cluster.ts';
import { groupSkipReason, ReplicationGroup } from '../support/databases/group-replication.ts';
import { TcpProxy } from '../support/databases/tcp-proxy.ts';

function rejectsToOpen(url: string, reason: RegExp): Promise<void> {
  return assert.rejects(openDatabase(url, { log: SILENT_LOG }), (error: Error) => {
    assert.ok(error instanceof DatabaseOpenError, String(error));
    assert.match(error.message, reason);
    assert.ok(!error.message.includes('secret'), 'the password');
    return true;
  });
}

describe('a group of several primaries', { skip: groupSkipReason() }, () => {
  let group: ReplicationGroup;
  before(async () => {
    group = await ReplicationGroup.create('multi-primary', 2);
  });
  after(() => group?.close());

  it('is refused at the start, by its name and with what to do', async () => {
    for (const { url } of group.members) {
      await rejectsToOpen(url, /multi-primary mode.*group_replication_single_primary_mode=ON/);
    }
  });
});

describe('a secondary of a group', { skip: groupSkipReason() }, () => {
  let group: ReplicationGroup;
  before(async () => {
    group = await ReplicationGroup.create('single-primary', 2);
  });
  after(() => group?.close());

  it('is refused at the start where the address leads to no other', async () => {
    await rejectsToOpen(at(group.members, 1).url, /takes no writes/);
  });

  it('is left by a pool that is led to it, for as long as it takes no writes', async () => {
    const [primary, secondary] = [at(group.members, 0), at(group.members, 1)];
    let leadsTo = [primary.port];
    const proxy = await TcpProxy.open(() => leadsTo);
    const test = await createTestDatabase('mysql', { server: urlOfPort(proxy.port) });
    try {
      const stores = storesOn(await test.open());
      assert.ok(await stores.accounts.create('before'));
      // A switch that the address follows late: the pool's connections are at a secondary now.
      await secondary.promote();
      await assert.rejects(stores.accounts.create('meanwhile'), {
        code: 'SERVICE_UNAVAILABLE',
        message: /read-only/,
      });
      leadsTo = [secondary.port];
      assert.ok(await stores.accounts.create('after'));
    } finally {
      await test.close();
      await proxy.close();
    }
  });
});
