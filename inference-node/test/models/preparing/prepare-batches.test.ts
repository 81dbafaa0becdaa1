/** Graphs for several pictures: their weights lie in the first, and no picture changes another. */
import assert from 'node:assert/strict';
import { appendFile, mkdtemp, readdir, readFile, rm, stat, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import test, { after, afterEach, before, beforeEach } from 'node:test';
import { at } from '../../../../test/support/at.ts';
import { EngineSession } from '../../../src/engine/child/engine-session.ts';
import { createSessionSpec } from '../../../src/engine/engine-protocol.ts';
import { ModelError } from '../../../src/models/model-error.ts';
import { decodeModel } from '../../../src/models/onnx/model-file.ts';
import type { PreparedModel } from '../../../src/models/prepared-model.ts';
import { prepareModel } from '../../../src/models/preparing/prepare.ts';
import { prepareBatches } from '../../../src/models/preparing/prepare-batches.ts';
import { cleanPrepared, listPrepared } from '../../../src/models/preparing/prepared-cache.ts';
import { fetchWeights } from '../../../src/models/weights/fetch.ts';
import {
  type FakeRegistry,
  makeTinyModel,
  openFakeRegistry,
  type TinyModel,
} from '../weights/fake-registry.ts';

const SIDE_PX = 64;

let model: TinyModel;
let registry: FakeRegistry;
let cacheDir: string;

before(async () => {
  model = await makeTinyModel(1000);
  registry = await openFakeRegistry(model.tarball);
});
after(() => registry.close());
beforeEach(async () => {
  cacheDir = await mkdtemp(join(tmpdir(), 'model-cache-'));
  await fetchWeights(model.manifest, { cacheDir, registryOptions: registry.options });
});
afterEach(() => rm(cacheDir, { recursive: true }));

/** For CUDA: half precision, bytes at both ends. */
function prepare(provider: 'cpu' | 'cuda'): Promise<PreparedModel> {
  return prepareModel({
    manifest: model.manifest,
    cacheDir,
    inputSize: { width: SIDE_PX, height: SIDE_PX },
    provider,
    instructionSet: 'x64-test',
    answering: { machine: 'a test', answer: () => Promise.reject(new Error('no engine here')) },
  });
}

async function loadOnCpu(prepared: PreparedModel): Promise<EngineSession> {
  const session = { intraOpThreads: 1, sharesCores: false, allowCpuNodes: true };
  const spec = createSessionSpec({ ...prepared, provider: 'cpu' }, session);
  return (await EngineSession.load(spec)).session;
}

/** Different in every part. */
function pictureOf(index: number): Uint8Array {
  const bytes = Array.from({ length: 3 * SIDE_PX * SIDE_PX }, (_, i) => i);
  return Uint8Array.from(bytes, i => (i * (7 * index + 5) + (i >> 6) * 11 * index) % 256);
}

for (const provider of ['cpu', 'cuda'] as const) {
  test(`each picture of several has the matte that it has alone, prepared for ${provider}`, async () => {
    const session = await loadOnCpu(await prepareBatches(await prepare(provider), 8));
    const pictures = Array.from({ length: 8 }, (_, index) => pictureOf(index));
    const alone: Uint8Array[] = [];
    for (const rgb of pictures) alone.push(Uint8Array.from(at(await session.run([rgb]), 0)));
    assert.equal(new Set(alone.map(alpha => Buffer.from(alpha).toString('hex'))).size, 8);
    for (const images of [2, 4, 8]) {
      const alphas = await session.run(pictures.slice(0, images));
      assert.equal(alphas.length, images);
      for (const [index, alpha] of alphas.entries()) {
        assert.deepEqual(
          Buffer.from(alpha),
          Buffer.from(at(alone, index)),
          `${index} of ${images}`,
        );
      }
    }
    await assert.rejects(session.run(pictures.slice(0, 3)), /no graph takes 3 pictures/);
  });
}

test('they hold the graph and not the weights, and are none of the prepared models', async () => {
  const single = await prepare('cpu');
  const { batches = [] } = await prepareBatches(single, 4);
  assert.deepEqual(
    batches.map(({ images, path }) => [images, basename(path)]),
    [2, 4].map(images => [images, basename(single.path).replace('_r', `_n${images}_r`)]),
  );
  const { initialisers } = decodeModel(await readFile(single.path), single.path);
  const weights = [...initialisers.values()].filter(({ data }) => data.length > 200);
  assert.ok(weights.length > 0);
  for (const { path } of batches) {
    const file = await readFile(path);
    for (const { data } of weights) assert.equal(file.indexOf(data), -1);
  }
  assert.equal((await listPrepared(cacheDir, model.manifest)).length, 1);
});

test('one at a time is the model as it is', async () => {
  const single = await prepare('cpu');
  assert.deepEqual(await prepareBatches(single, 1), single);
  const again = await prepareBatches(await prepareBatches(single, 2), 1);
  assert.deepEqual(again, single);
});

test('a file that is there is kept, a damaged one is made again', async () => {
  const single = await prepare('cpu');
  const { batches } = await prepareBatches(single, 2);
  const { path } = at(batches ?? [], 0);
  const { ino } = await stat(path);
  assert.deepEqual((await prepareBatches(single, 2)).batches, batches);
  assert.equal((await stat(path)).ino, ino);
  await appendFile(path, 'x');
  assert.deepEqual((await prepareBatches(single, 2)).batches, batches);
  assert.notEqual((await stat(path)).ino, ino);
});

test('those of an older revision go with the prepared file, a day after their last use', async () => {
  const single = await prepare('cpu');
  const folder = join(single.path, '..');
  const { batches } = await prepareBatches(single, 2);
  const { path } = at(batches ?? [], 0);
  const old = path.replace(/_r\d+\.onnx$/, '_r1.onnx');
  await rm(path).then(() => appendFile(old, 'x'));
  await cleanPrepared(cacheDir, model.manifest);
  assert.ok((await readdir(folder)).includes(basename(old)));
  const before = new Date(Date.now() - 25 * 3600 * 1000);
  await utimes(old, before, before);
  await cleanPrepared(cacheDir, model.manifest);
  assert.ok(!(await readdir(folder)).includes(basename(old)));
});

test('a prepared file that is gone or is none is a line for the operator', async () => {
  const single = await prepare('cpu');
  const wrong = { ...single, path: `${single.path}.gone` };
  await assert.rejects(prepareBatches(wrong, 2), error => {
    assert.ok(error instanceof ModelError);
    assert.equal(error.kind, 'disk');
    return true;
  });
});
