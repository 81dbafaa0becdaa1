/** A group with several primaries, and a pool connected to a secondary. */
import ava from 'ava';
import { DatabaseOpenError, openDatabase } from '../../control-plane/database/connect.ts';
import { series, storesOn } from '../../control-plane/test/fixtures.ts';
import { at } from '../support/at.ts';
import { createTestDatabase, SILENT_LOG } from '../support/database.ts';
import { urlOfPort } from '../support/databases/cluster.ts';
import { groupSkipReason, ReplicationGroup } from '../support/databases/group-replication.ts';
import { TcpProxy } from '../support/databases/tcp-proxy.ts';
import { isNotTested } from '../support/skip.ts';

const test = ava.serial.skipIf(isNotTested(groupSkipReason()));

test('a group of several primaries › is refused at the start, by its name and with what to do', async t => {
  const group = await ReplicationGroup.create('multi-primary', 2);
  t.teardown(() => group.close());
  for (const { url } of group.members) {
    const refused = await t.throwsAsync(openDatabase(url, { log: SILENT_LOG }), {
      instanceOf: DatabaseOpenError,
      message: /multi-primary mode.*group_replication_single_primary_mode=ON/,
    });
    t.false(refused?.message.includes('secret'), 'the password');
  }
});

test('a secondary of a group is left by a pool that is led to it, for as long as it takes no writes', async t => {
  const group = await ReplicationGroup.create('single-primary', 2);
  t.teardown(() => group.close());
  const [primary, secondary] = [at(group.members, 0), at(group.members, 1)];
  let leadsTo = [primary.port];
  const proxy = await TcpProxy.open(() => leadsTo);
  const fixture = await createTestDatabase('mysql', { series, server: urlOfPort(proxy.port) });
  try {
    const stores = storesOn(await fixture.open());
    t.truthy(await stores.accounts.create('before'));
    // The address follows the switch late: the pool is connected to a secondary.
    await secondary.promote();
    await t.throwsAsync(stores.accounts.create('meanwhile'), {
      code: 'SERVICE_UNAVAILABLE',
      message: /read-only/,
    });
    leadsTo = [secondary.port];
    t.truthy(await stores.accounts.create('after'));
  } finally {
    await fixture.close();
    await proxy.close();
  }
});
