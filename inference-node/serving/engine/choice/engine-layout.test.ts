import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import test, { type ExecutionContext } from 'ava';
import type { ExecutionProvider, MatteRole, PreparedModel } from '../../models/prepared-model.ts';
import {
  chooseEngineLayout,
  enginesOf,
  readCpuShare,
  THREADS_PER_ENGINE_MAX,
} from './engine-layout.ts';

function layout(cpuShare: number, more: Partial<Parameters<typeof chooseEngineLayout>[0]> = {}) {
  return chooseEngineLayout({ provider: 'cpu', enginesMax: 64, cpuShare, ...more });
}

test('a share below one CPU, or of a fraction over, is no further thread', t => {
  t.deepEqual(layout(0.25), { engines: 1, threadsPerEngine: 1 });
  t.deepEqual(layout(2.9), { engines: 1, threadsPerEngine: 2 });
});

test('there are no more engines than the memory holds, and at least one', t => {
  t.deepEqual(layout(8, { enginesMax: 0 }), { engines: 1, threadsPerEngine: 8 });
  t.deepEqual(layout(64, { enginesMax: 2 }), { engines: 2, threadsPerEngine: 16 });
});

test('one engine with all the threads, as long as they fill one', t => {
  t.deepEqual(layout(2), { engines: 1, threadsPerEngine: 2 });
  t.deepEqual(layout(16), { engines: 1, threadsPerEngine: 16 });
  t.deepEqual(layout(24), { engines: 2, threadsPerEngine: 12 });
});

function planned(role: MatteRole, inputWidth: number, provider: ExecutionProvider = 'cpu') {
  const model = { model: `${role} ${inputWidth}`, provider, inputWidth, inputHeight: inputWidth };
  return { role, model: model as PreparedModel };
}

test('a model that runs less often has half of the engines, and never none', t => {
  const subject = planned('subject', 1024);
  const less = [planned('opinion', 448), planned('secondLook', 768)];
  const plan = [subject, ...less];
  for (const [engines, half] of [
    [1, 1],
    [2, 1],
    [3, 2],
    [16, 8],
  ] as const) {
    t.is(enginesOf(subject, plan, engines), engines);
    for (const each of less) t.is(enginesOf(each, plan, engines), half);
  }
});

test('models of each picture, models as costly as the subject, and models on a GPU get all engines', t => {
  const subject = planned('subject', 1024);
  const others = [
    planned('subject', 768),
    planned('refine', 512),
    planned('opinion', 1024),
    planned('secondLook', 1536),
    planned('opinion', 448, 'cuda'),
  ];
  for (const each of others) t.is(enginesOf(each, [subject, each], 4), 4, each.model.model);
});

test('never more threads than CPUs, never an engine over its bound', t => {
  for (let share = 1; share <= 256; share++) {
    const { engines, threadsPerEngine } = layout(share);
    t.true(engines * threadsPerEngine <= share);
    t.true(threadsPerEngine >= 1 && threadsPerEngine <= THREADS_PER_ENGINE_MAX);
  }
});

test('a GPU with 16 cores has two engines of one thread if memory has room, else one', t => {
  for (const [share, enginesMax, engines] of [
    [1, 64, 1],
    [15.9, 64, 1],
    [16, 64, 2],
    [256, 64, 2],
    [256, 1, 1],
    [256, 0, 1],
  ] as const) {
    const expected = { engines, threadsPerEngine: 1 };
    t.deepEqual(layout(share, { provider: 'cuda', enginesMax }), expected);
  }
});

const PARALLELISM = 16;

/** `membership`: contents of /proc/self/cgroup. */
async function readWith(
  context: ExecutionContext,
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

test('without control groups the scheduler’s processors count', async t => {
  t.is(await readWith(t, undefined, {}), PARALLELISM);
  t.is(await readWith(t, '', {}), PARALLELISM);
  t.is(await readWith(t, '0::/\n', {}), PARALLELISM);
});

test('nonsense in a quota limits nothing', async t => {
  for (const text of ['', 'max 100000\n', '0 100000', '-1 100000', 'banana', '100000']) {
    t.is(await readWith(t, '0::/\n', { 'cpu.max': text }), PARALLELISM, text);
  }
});

test('version 2: the least of the own group and those above it', async t => {
  const membership = '0::/pods/mine\n';
  t.is(await readWith(t, membership, { 'pods/mine/cpu.max': '150000 100000' }), 1.5);
  t.is(await readWith(t, membership, { 'cpu.max': '300000 100000' }), 3);
  const both = { 'pods/cpu.max': '50000 100000', 'pods/mine/cpu.max': '400000 100000' };
  t.is(await readWith(t, membership, both), 0.5);
  t.is(await readWith(t, '0::/\n', { 'cpu.max': '9000000 100000' }), PARALLELISM);
});

test('version 1: under either mount, also where only the mount is seen', async t => {
  const membership = '12:cpuset:/docker/1\n4:cpu,cpuacct:/docker/1\n0::/\n';
  const quota = (folder: string, us: number) => ({
    [`${folder}/cpu.cfs_quota_us`]: `${us}\n`,
    [`${folder}/cpu.cfs_period_us`]: '100000\n',
  });
  t.is(await readWith(t, membership, quota('cpu,cpuacct/docker/1', 250_000)), 2.5);
  t.is(await readWith(t, membership, quota('cpu', 200_000)), 2);
  t.is(await readWith(t, membership, quota('cpu', -1)), PARALLELISM);
});
