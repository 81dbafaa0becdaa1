import { chmod, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import ava, { type ExecutionContext } from 'ava';
import { chooseDevice } from './choose-gpu.ts';
import { listGpus } from './list-gpus.ts';

const test = ava.serial;

const gpu = (index: number, id: string, gigabytes = 80) => ({
  ...{ index, id, name: 'a GPU', driver: '580.65.06' },
  memoryBytes: gigabytes * 1e9,
});
const LISTED = [gpu(0, 'GPU-aaaa-1'), gpu(1, 'GPU-bbbb-2'), gpu(2, 'MIG-cccc-3')];

async function smi(context: ExecutionContext, script: string): Promise<Record<string, string>> {
  const folder = await temporaryFolder(context);
  const file = path.join(folder, 'nvidia-smi');
  await writeFile(file, `#!/bin/sh\n${script}\n`);
  await chmod(file, 0o755);
  return { PATH: `${folder}:/bin:/usr/bin` };
}

test('the one that is named, else the first that CUDA_VISIBLE_DEVICES leaves', t => {
  const choice = (...args: Parameters<typeof chooseDevice>) => {
    const { gpu: chosen, visible } = chooseDevice(...args);
    return [chosen?.id, visible];
  };
  t.deepEqual(choice(undefined, LISTED, undefined), ['GPU-aaaa-1', 3]);
  t.deepEqual(choice('1', LISTED, undefined), ['GPU-bbbb-2', 1]);
  t.deepEqual(choice('MIG-cccc', LISTED, undefined), ['MIG-cccc-3', 1]);
  t.deepEqual(choice(undefined, LISTED, '2,0'), ['MIG-cccc-3', 2]);
  t.deepEqual(choice(undefined, LISTED, '1,1'), ['GPU-bbbb-2', 1]);
  t.deepEqual(choice(undefined, LISTED, '1,9,0'), ['GPU-bbbb-2', 1]);
  for (const none of ['-1', '']) t.deepEqual(choice(undefined, LISTED, none), [undefined, 0]);
  t.deepEqual(choice('0', LISTED, '2'), ['GPU-aaaa-1', 1]);
  // The second fits any GPU.
  for (const missing of ['7', 'GPU-', 'GPU-zzzz']) {
    t.is(choice(missing, LISTED, undefined)[0], undefined, missing);
  }
});

test('no command, one that fails, and one that talks nonsense', async t => {
  const none = await listGpus({ PATH: '/nowhere' });
  if (none.state === 'failed') t.regex(none.reason, /nvidia-smi/);
  const lost = 'Unable to determine the device handle for GPU0: GPU is lost.';
  const failed = await listGpus(await smi(t, `echo "${lost}"; exit 15`));
  t.deepEqual(failed, { state: 'failed', reason: lost });
  const nonsense = await listGpus(await smi(t, 'echo "No devices were found"'));
  t.deepEqual(nonsense, { state: 'listed', gpus: [] });
});

test('GPUs, and the instances of one that is partitioned', async t => {
  const rows = [
    '0, GPU-aaaa-1, NVIDIA H100 80GB HBM3, 81559, 580.65.06, Disabled',
    '1, GPU-bbbb-2, NVIDIA H100 80GB HBM3, 81559, 580.65.06, Enabled',
  ];
  const tree = [
    'GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-aaaa-1)',
    'GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-bbbb-2)',
    '  MIG 1g.10gb     Device  0: (UUID: MIG-cccc-3)',
    '  MIG 3g.40gb     Device  1: (UUID: MIG-dddd-4)',
  ];
  const echoes = (lines: string[]) => lines.map(line => `echo '${line}'`).join('\n');
  const script = `if [ "$1" = -L ]; then\n${echoes(tree)}\nelse\n${echoes(rows)}\nfi`;
  const listing = await listGpus(await smi(t, script));
  t.is(listing.state, 'listed');
  const found = listing.state === 'listed' ? listing.gpus : [];
  t.deepEqual(
    found.map(({ id, name, memoryBytes }) => [id, name, Math.round(memoryBytes / 2 ** 30)]),
    [
      ['GPU-aaaa-1', 'NVIDIA H100 80GB HBM3', 80],
      ['MIG-cccc-3', 'NVIDIA H100 80GB HBM3 MIG 1g.10gb', 10],
      ['MIG-dddd-4', 'NVIDIA H100 80GB HBM3 MIG 3g.40gb', 40],
    ],
  );
});

test('a listing that is not whole counts as far as it came, and says so; one that was killed does not', async t => {
  const row = (start: string) => `echo '${start}, an H100, 81559, 580, Disabled'`;
  const lost = 'Unable to determine the device handle for GPU1: 0000:44:00.0: Unknown Error';
  const [first, third] = [row('0, GPU-aaaa-1'), row('2, GPU-cccc-3')];
  for (const [script, indices] of [
    [`${first}; echo '${lost}'; exit 15`, [0]],
    [`${first}; echo '${lost}' >&2; exit 15`, [0]],
    // A GPU fell off the bus.
    [`echo '${lost}'; ${first}; ${third}`, [0, 2]],
    [`echo '${lost}' >&2; ${first}; ${third}`, [0, 2]],
  ] as const) {
    const listing = await listGpus(await smi(t, script));
    const found = listing.state === 'listed' ? listing.gpus.map(({ index }) => index) : [];
    t.deepEqual(found, [...indices], script);
    t.like(listing, { state: 'listed', incomplete: lost });
  }
  t.is((await listGpus(await smi(t, `${first}; kill -9 $$`))).state, 'failed');
});

test('the driver’s libraries are found where engines find them', async t => {
  const env = await smi(t, 'echo "0, GPU-aaaa-1, $LD_LIBRARY_PATH, 1, 580, Disabled"');
  const listing = await listGpus({ ...env, LD_LIBRARY_PATH: '/opt/driver', SECRET: 'none' });
  t.is(listing.state === 'listed' && listing.gpus[0]?.name, '/opt/driver');
});
