import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { openSmiSampler, parseSmiLine, summariseSmi } from '../../../bench/card/smi-samples.ts';

test('a line of nvidia-smi is a share and a number of MiB, as far as the GPU says them', () => {
  assert.deepEqual(parseSmiLine('97, 5312', 1), { atMs: 1, busy: 0.97, memoryMib: 5312 });
  assert.deepEqual(parseSmiLine(' 0, 1', 2), { atMs: 2, busy: 0, memoryMib: 1 });
  const unknown = { atMs: 3, busy: undefined, memoryMib: undefined };
  assert.deepEqual(parseSmiLine('[N/A], [Not Supported]', 3), unknown);
  for (const line of [
    '',
    'NVIDIA-SMI has failed',
    'GPU is lost, reboot',
    '1, 2, 3',
    '97 %, 5 MiB',
  ]) {
    assert.equal(parseSmiLine(line, 4), undefined, line);
  }
});

test('a window has the mean of how busy the GPU was, and the most memory', () => {
  const samples = [
    { atMs: 1, busy: 0.5, memoryMib: 100 },
    { atMs: 2, busy: 1, memoryMib: 300 },
    { atMs: 3, busy: undefined, memoryMib: 200 },
  ];
  assert.deepEqual(summariseSmi(samples), { samples: 3, gpuBusy: 0.75, gpuMemoryMib: 300 });
  const none = { samples: 0, gpuBusy: undefined, gpuMemoryMib: undefined };
  assert.deepEqual(summariseSmi([]), none);
});

test('nvidia-smi is asked again where the one that repeats itself ends', async () => {
  const folder = await mkdtemp(path.join(tmpdir(), 'nvidia-smi-'));
  const script = path.join(folder, 'nvidia-smi');
  await writeFile(
    script,
    '#!/bin/sh\ncase "$*" in *-lms*) echo 10, 100; exit 9;; *) echo 90, 900;; esac\n',
  );
  await chmod(script, 0o755);
  const { PATH } = process.env;
  process.env.PATH = `${folder}:${PATH}`;
  const fromMs = performance.now();
  const sampler = openSmiSampler('GPU-1');
  try {
    while (sampler.last()?.memoryMib !== 900) await delay(10);
    const figures = sampler.between(fromMs, performance.now());
    assert.equal(figures.gpuMemoryMib, 900);
    assert.deepEqual(sampler.between(0, fromMs).samples, 0);
  } finally {
    sampler.close();
    process.env.PATH = PATH;
    await rm(folder, { recursive: true });
  }
});
