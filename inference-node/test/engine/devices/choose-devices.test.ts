/** Which GPUs a node takes, as the driver's command lists them. */
import assert from 'node:assert/strict';
import { chmod, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { type TestContext, test } from 'node:test';
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts';
import { chooseDevices, spreadEngines } from '../../../src/engine/devices/choose-devices.ts';
import { listGpus } from '../../../src/engine/devices/nvidia-smi.ts';

const gpu = (index: number, id: string, gigabytes = 80) => ({
  ...{ index, id, name: 'a GPU', driver: '580.65.06' },
  memoryBytes: gigabytes * 1e9,
});
const LISTED = [gpu(0, 'GPU-aaaa-1'), gpu(1, 'GPU-bbbb-2'), gpu(2, 'MIG-cccc-3')];

/** A command of that name before everything else in the PATH. */
async function smi(context: TestContext, script: string): Promise<Record<string, string>> {
  const folder = await temporaryFolder(context);
  const file = path.join(folder, 'nvidia-smi');
  await writeFile(file, `#!/bin/sh\n${script}\n`);
  await chmod(file, 0o755);
  return { PATH: `${folder}:/bin:/usr/bin` };
}

test('what is named and not there is missing, by its name', () => {
  assert.deepEqual(chooseDevices(['7', '0', 'GPU-zzzz'], LISTED, undefined), {
    missing: ['7', 'GPU-zzzz'],
  });
  // So short a name could be any.
  assert.deepEqual(chooseDevices(['GPU-'], LISTED, undefined), { missing: ['GPU-'] });
});

test('all, some by number or identifier, and what CUDA_VISIBLE_DEVICES leaves', () => {
  const ids = (...args: Parameters<typeof chooseDevices>) => {
    const choice = chooseDevices(...args);
    return 'gpus' in choice ? choice.gpus.map(({ id }) => id) : choice.missing;
  };
  const all = LISTED.map(({ id }) => id);
  assert.deepEqual(ids('all', LISTED, undefined), all);
  assert.deepEqual(ids(['1', 'GPU-bbbb-2', 'MIG-cccc'], LISTED, undefined), all.slice(1));
  assert.deepEqual(ids('all', LISTED, '2,0'), ['MIG-cccc-3', 'GPU-aaaa-1']);
  assert.deepEqual(ids('all', LISTED, '1,9,0'), ['GPU-bbbb-2']);
  // Empty hides them all, as from CUDA.
  for (const none of ['-1', '']) assert.deepEqual(ids('all', LISTED, none), []);
  assert.deepEqual(ids(['0'], LISTED, '2'), ['GPU-aaaa-1']);
});

test('engines go in proportion to memory, and evenly where GPUs are alike', () => {
  const names = (engines: number, memory: Record<string, number>) =>
    spreadEngines(
      engines,
      Object.entries(memory).map(([name, gigabytes]) => ({ name, facts: gpu(0, name, gigabytes) })),
    )
      .map(({ name }) => name)
      .join('');
  assert.equal(names(4, { a: 80, b: 80 }), 'abab');
  assert.equal(names(1, { a: 40, b: 80 }), 'b');
  assert.equal(names(6, { a: 40, b: 80 }).split('a').length - 1, 2);
  assert.equal(names(3, { a: 0, b: 0 }), 'aba');
  assert.equal(names(0, { a: 1 }), '');
  assert.equal(names(3, { a: 0.2, b: 0.1 }), 'aab');
});

test('no command, one that fails, and one that talks nonsense', async context => {
  const none = await listGpus({ PATH: '/nowhere' });
  if (none.state === 'failed') assert.match(none.reason, /nvidia-smi/);
  const lost = 'Unable to determine the device handle for GPU0: GPU is lost.';
  const failed = await listGpus(await smi(context, `echo "${lost}"; exit 15`));
  assert.deepEqual(failed, { state: 'failed', reason: lost });
  const nonsense = await listGpus(await smi(context, 'echo "No devices were found"'));
  assert.deepEqual(nonsense, { state: 'listed', gpus: [] });
});

test('GPUs, and the instances of one that is partitioned', async context => {
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
  const said = (lines: string[]) => lines.map(line => `echo '${line}'`).join('\n');
  const script = `if [ "$1" = -L ]; then\n${said(tree)}\nelse\n${said(rows)}\nfi`;
  const listing = await listGpus(await smi(context, script));
  assert.equal(listing.state, 'listed');
  const found = listing.state === 'listed' ? listing.gpus : [];
  assert.deepEqual(
    found.map(({ id, name, memoryBytes }) => [id, name, Math.round(memoryBytes / 2 ** 30)]),
    [
      ['GPU-aaaa-1', 'NVIDIA H100 80GB HBM3', 80],
      ['MIG-cccc-3', 'NVIDIA H100 80GB HBM3 MIG 1g.10gb', 10],
      ['MIG-dddd-4', 'NVIDIA H100 80GB HBM3 MIG 3g.40gb', 40],
    ],
  );
});

test('a listing that fails half way counts as far as it came; one that was killed does not', async context => {
  const row = 'GPU-aaaa-1, NVIDIA H100 80GB HBM3, 81559, 580.65.06, Disabled';
  const lost = 'Unable to determine the device handle for GPU1: GPU is lost.';
  for (const script of [
    `echo '0, ${row}'; echo '${lost}'`,
    `echo '0, ${row}'; echo '${lost}' >&2`,
  ]) {
    const listing = await listGpus(await smi(context, `${script}; exit 15`));
    assert.equal(listing.state, 'listed');
    if (listing.state !== 'listed') continue;
    assert.deepEqual([listing.gpus.length, listing.incomplete], [1, lost]);
  }
  const killed = await listGpus(await smi(context, `echo '0, ${row}'; kill -9 $$`));
  assert.equal(killed.state, 'failed');
});

test('a GPU that fell off the bus is told of by an answer that is whole without it', async context => {
  const rows = ['0, GPU-aaaa-1', '2, GPU-cccc-3'].map(
    row => `${row}, an H100, 81559, 580, Disabled`,
  );
  const lost = 'Unable to determine the device handle for GPU1: 0000:44:00.0: Unknown Error';
  const said = rows.map(row => `echo '${row}'`).join('; ');
  for (const script of [`echo '${lost}' >&2; ${said}`, `echo '${lost}'; ${said}`]) {
    const listing = await listGpus(await smi(context, script));
    assert.equal(listing.state, 'listed');
    if (listing.state !== 'listed') continue;
    assert.deepEqual([listing.gpus.map(({ index }) => index), listing.incomplete], [[0, 2], lost]);
  }
});

test('the driver’s libraries are found where engines find them', async context => {
  const env = await smi(context, 'echo "0, GPU-aaaa-1, $LD_LIBRARY_PATH, 1, 580, Disabled"');
  const listing = await listGpus({ ...env, LD_LIBRARY_PATH: '/opt/driver', SECRET: 'none' });
  assert.equal(listing.state === 'listed' && listing.gpus[0]?.name, '/opt/driver');
});
