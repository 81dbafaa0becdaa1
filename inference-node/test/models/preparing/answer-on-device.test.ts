/** A model on a GPU that was not seen before: held against the CPU's answer, made where weights are. */
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import path from 'node:path';
import ava from 'ava';
import { temporaryFolder } from '../../../../test/support/temporary-folder.ts';
import type { PreparedModel } from '../../../src/models/prepared-model.ts';
import {
  checkAnswerOnDevice,
  type DeviceAnswerOptions,
} from '../../../src/models/preparing/answer-on-device.ts';
import { prepareModel } from '../../../src/models/preparing/prepare.ts';
import { fetchWeights } from '../../../src/models/weights/fetch.ts';
import {
  type FakeRegistry,
  makeTinyModel,
  openFakeRegistry,
  type TinyModel,
} from '../weights/fake-registry.ts';

const test = ava.serial;

/** The folders of all tests. */
const ROOM = await temporaryFolder({ teardown: test.after.always });

/** Without ranges, as modnet at 448 has none. */
let tiny: TinyModel;
let registry: FakeRegistry;
let root: string;
/** As in a container image: weights in one folder, an empty one for all else. */
let places: { readonly cacheDir: string; readonly weightsDir: string };
let onGpu: PreparedModel;
/** What the CPU was asked to run. */
let asked: PreparedModel[];

test.before(async () => {
  tiny = await makeTinyModel(1000);
  registry = await openFakeRegistry(tiny.tarball);
});
test.after.always(() => registry.close());
test.beforeEach(async () => {
  root = await mkdtemp(path.join(ROOM, 'models-'));
  places = { cacheDir: path.join(root, 'models'), weightsDir: path.join(root, 'weights') };
  asked = [];
  const { manifest } = tiny;
  const folder = path.join(root, 'manifests', manifest.name);
  await mkdir(folder, { recursive: true });
  await writeFile(path.join(folder, 'manifest.json'), JSON.stringify(manifest));
  const { options: registryOptions } = registry;
  await fetchWeights(manifest, { cacheDir: places.weightsDir, registryOptions });
  const { instructionSet, answering } = options();
  onGpu = await prepareModel({
    ...{ manifest, ...places, instructionSet, answering },
    precision: 'fp16',
    provider: 'cuda',
  });
});

function options(gpuLevel = 100): Omit<DeviceAnswerOptions, 'model'> {
  const answerOf = (level: number) => async (model: PreparedModel) =>
    new Uint8Array(model.inputWidth * model.inputHeight).fill(level);
  return {
    ...places,
    manifestDirectory: path.join(root, 'manifests'),
    instructionSet: 'x64-test',
    machine: 'a GPU, driver 580',
    answer: answerOf(gpuLevel),
    answering: {
      machine: 'a test',
      answer: async model => {
        asked.push(model);
        return await answerOf(100)(model);
      },
    },
  };
}

test('weights that are only in the folder that is read are enough', async t => {
  t.is(await checkAnswerOnDevice({ ...options(), model: onGpu }), undefined);
  const [onCpu, ...more] = asked;
  t.deepEqual([onCpu?.precision, onCpu?.provider, more.length], ['fp32', 'cpu', 0]);
  t.truthy(onCpu?.path.startsWith(places.cacheDir));
  // Remembered: asked no more.
  t.is(await checkAnswerOnDevice({ ...options(0), model: onGpu }), undefined);
  t.is(asked.length, 1);
});

test('one that is checked afresh is held against the answer that was found before', async t => {
  t.is(await checkAnswerOnDevice({ ...options(), model: onGpu }), undefined);
  await rm(places.weightsDir, { recursive: true });
  const afresh = { machine: undefined, model: onGpu };
  t.is(await checkAnswerOnDevice({ ...options(), ...afresh }), undefined);
  t.regex((await checkAnswerOnDevice({ ...options(200), ...afresh })) ?? '', /is wrong/);
  t.is(asked.length, 1);
});

test('a GPU of which nothing is known is checked each time', async t => {
  const unknown = { machine: undefined, model: onGpu };
  t.is(await checkAnswerOnDevice({ ...options(), ...unknown }), undefined);
  t.regex((await checkAnswerOnDevice({ ...options(0), ...unknown })) ?? '', /is wrong/);
});

test('another answer is wrong, and is not remembered as right', async t => {
  const wrong = await checkAnswerOnDevice({ ...options(200), model: onGpu });
  t.regex(wrong ?? '', /^its answer to the check picture is wrong: /);
  t.regex((await checkAnswerOnDevice({ ...options(200), model: onGpu })) ?? '', /is wrong/);
});

test('without an answer to hold its own against a GPU is not taken for right', async t => {
  await rm(places.weightsDir, { recursive: true });
  const reason = await checkAnswerOnDevice({ ...options(), model: onGpu });
  t.regex(reason ?? '', /^there is no answer to hold its own against: .*models fetch tiny/);
  const failing = { machine: 'a test', answer: () => Promise.reject(new Error('no memory')) };
  await fetchWeights(tiny.manifest, {
    cacheDir: places.weightsDir,
    registryOptions: registry.options,
  });
  const failed = await checkAnswerOnDevice({ ...options(), model: onGpu, answering: failing });
  t.is(failed, 'there is no answer to hold its own against: no memory');
});
