import assert from 'node:assert/strict';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts';
import { readCpuShare } from '../../../src/engine/choice/cpu-share.ts';

const PARALLELISM = 16;

/** Control groups as files; `membership` is what /proc/self/cgroup says. */
async function readWith(
  context: TestContext,
  membership: string | undefined,
  files: Record<string, string>,
): Promise<number> {
  const root = await temporaryFolder(context);
  const procCgroup = path.join(root, 'membership');
  if (membership !== undefined) await writeFile(procCgroup, membership);
  for (const [name, text] of Object.entries(files)) {
    await mkdir(path.dirname(path.join(root, name)), { recursive: true });
    await writeFile(path.join(root, name), text);
  }
  return readCpuShare({ cgroupRoot: root, procCgroup, parallelism: PARALLELISM });
}

test('without control groups it is what the scheduler allows', async context => {
  assert.equal(await readWith(context, undefined, {}), PARALLELISM);
  assert.equal(await readWith(context, '', {}), PARALLELISM);
  assert.equal(await readWith(context, '0::/\n', {}), PARALLELISM);
});

test('nonsense in a quota limits nothing', async context => {
  for (const text of ['', 'max 100000\n', '0 100000', '-1 100000', 'banana', '100000']) {
    assert.equal(await readWith(context, '0::/\n', { 'cpu.max': text }), PARALLELISM, text);
  }
});

test('version 2: the least of the own group and those above it', async context => {
  const membership = '0::/pods/mine\n';
  assert.equal(await readWith(context, membership, { 'pods/mine/cpu.max': '150000 100000' }), 1.5);
  assert.equal(await readWith(context, membership, { 'cpu.max': '300000 100000' }), 3);
  const both = { 'pods/cpu.max': '50000 100000', 'pods/mine/cpu.max': '400000 100000' };
  assert.equal(await readWith(context, membership, both), 0.5);
});

test('a quota above the scheduler does not add CPUs', async context => {
  assert.equal(await readWith(context, '0::/\n', { 'cpu.max': '9000000 100000' }), PARALLELISM);
});

test('version 1: under either mount, also where only the mount is seen', async context => {
  const membership = '12:cpuset:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/\n';
  const quota = (folder: string, us: number) => ({
    [`${folder}/cpu.cfs_quota_us`]: `${us}\n`,
    [`${folder}/cpu.cfs_period_us`]: '100000\n',
  });
  assert.equal(await readWith(context, membership, quota('cpu,cpuacct/docker/1', 250_000)), 2.5);
  assert.equal(await readWith(context, membership, quota('cpu', 200_000)), 2);
  assert.equal(await readWith(context, membership, quota('cpu', -1)), PARALLELISM);
});

test('this machine has at least a part of a CPU', async () => {
  const share = await readCpuShare();
  assert.ok(share > 0 && Number.isFinite(share));
});
