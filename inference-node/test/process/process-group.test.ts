import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { afterEach, test } from 'node:test';
import { findMember, killGroup } from '../../src/process/child.ts';
import { until } from '../support/processes.ts';

const groups: number[] = [];

afterEach(() => {
  for (const group of groups.splice(0)) killGroup(group);
});

/** The leader of a group, whose other member writes its pid and lives on. */
async function openGroup(): Promise<{ leader: ChildProcess; group: number; member: number }> {
  const program = 'sleep 600 & echo $!; read -r _';
  const leader = spawn('sh', ['-c', program], {
    detached: true,
    stdio: ['pipe', 'pipe', 'inherit'],
  });
  const group = leader.pid as number;
  groups.push(group);
  const [pid] = await once(leader.stdout as NodeJS.ReadableStream, 'data');
  return { leader, group, member: Number(pid) };
}

test('a member that its leader left behind is found, until it is gone', async () => {
  const { leader, group, member } = await openGroup();
  assert.ok([group, member].includes(findMember(group, undefined) as number));
  leader.kill('SIGKILL');
  await once(leader, 'exit');
  assert.equal(findMember(group, undefined), member);
  // One that is gone, and one of another group.
  assert.equal(findMember(group, group), member);
  assert.equal(findMember(group, process.pid), member);
  killGroup(group);
  await until('the group is gone', () => findMember(group, member) === undefined);
});

test('while a known member lives the other processes of the machine are not looked at', async t => {
  const { group, member } = await openGroup();
  const listing = t.mock.method(fs, 'readdirSync');
  syncBuiltinESMExports();
  assert.equal(findMember(group, member), member);
  assert.equal(listing.mock.callCount(), 0);
  findMember(group, undefined);
  assert.equal(listing.mock.callCount(), 1);
  listing.mock.restore();
  syncBuiltinESMExports();
});
