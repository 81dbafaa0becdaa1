/** Tests members that refuse writes: a program that starts on one fails, a pool goes on. */
import assert from 'node:assert/strict';
import ava, { type ExecutionContext } from 'ava';
import { DatabaseOpenError, openDatabase } from '../../control-plane/database/connect.ts';
import { series, storesOn } from '../../control-plane/test/fixtures.ts';
import { at } from '../support/at.ts';
import { createTestDatabase, SILENT_LOG } from '../support/database.ts';
import { urlOfPort } from '../support/databases/cluster.ts';
import { groupSkipReason, ReplicationGroup } from '../support/databases/group-replication.ts';
import { TcpProxy } from '../support/databases/tcp-proxy.ts';
import { isNotTested } from '../support/skip.ts';
import { rejectsWith } from '../support/throws.ts';

const test = ava.serial.skipIf(isNotTested(groupSkipReason()));

function rejectsToOpen(t: ExecutionContext, url: string, reason: RegExp): Promise<void> {
  return rejectsWith(t, openDatabase(url, { log: SILENT_LOG }), (error: Error) => {
    assert.ok(error instanceof DatabaseOpenError, String(error));
    t.regex(error.message, reason);
    t.false(error.message.includes('secret'), 'the password');
    return true;
  });
}

test('a group of several primaries › is refused at the start, by its name and with what to do', async t => {
  const group = await ReplicationGroup.create('multi-primary', 2);
  t.teardown(() => group.close());
  for (const { url } of group.members) {
    await rejectsToOpen(t, url, /multi-primary mode.*group_replication_single_primary_mode=ON/);
  }
});

let singlePrimary: Promise<ReplicationGroup> | undefined;
/** The tests from here on share it: the first of them opens it, when the group before is gone. */
const opened = () => (singlePrimary ??= ReplicationGroup.create('single-primary', 2));
ava.serial.after.always(async () => (await singlePrimary)?.close());

test('a secondary of a group › is refused at the start where the address leads to no other', async t => {
  const group = await opened();
  await rejectsToOpen(t, at(group.members, 1).url, /takes no writes/);
});

test('a secondary of a group › is left by a pool that is led to it, for as long as it takes no writes', async t => {
  const group = await opened();
  const [primary, secondary] = [at(group.members, 0), at(group.members, 1)];
  let leadsTo = [primary.port];
  const proxy = await TcpProxy.open(() => leadsTo);
  const fixture = await createTestDatabase('mysql', { series, server: urlOfPort(proxy.port) });
  try {
    const stores = storesOn(await fixture.open());
    t.truthy(await stores.accounts.create('before'));
    // A switch that the address follows late: the pool's connections are at a secondary now.
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
