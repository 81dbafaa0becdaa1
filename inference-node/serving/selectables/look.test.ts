import fsPromises, { mkdir, rm, symlink, writeFile } from 'node:fs/promises';
import { syncBuiltinESMExports } from 'node:module';
import path from 'node:path';
import { temporaryFolder } from '@matting/test-support/temporary-folder.ts';
import { rejectsWith } from '@matting/test-support/throws.ts';
import { TINY_LICENCE } from '@matting/test-support/tiny-model.ts';
import ava, { type ExecutionContext } from 'ava';
import sinon from 'sinon';
import { loadManifest } from '../models/manifest.ts';
import type { CommercialUseGate } from '../models/model-settings.ts';
import { admittedOutlineOf } from '../models/plan.ts';
import type { ExecutionProvider } from '../models/prepared-model.ts';
import { preparedPath, writeSidecar } from '../prepared/prepared-cache.ts';
import { addTinyModel } from '../test/added-model.ts';
import { isModelError } from '../test/is-model-error.ts';
import { parseModelSettings } from '../test/model-settings.ts';
import { sha256 } from '../test/test-node.ts';
import { lookAround } from './look.ts';

// The tests run one after the other: one of them counts what is read.
const test = ava.serial;

async function open(t: ExecutionContext) {
  const modelDir = await temporaryFolder(t);
  const addedModelsDir = await temporaryFolder(t);
  const folders = { modelDir, addedModelsDir };
  const look = (commercialUse?: CommercialUseGate, provider: ExecutionProvider = 'cpu') => {
    const settings = { ...folders, weightsDir: undefined, commercialUse };
    return lookAround({ settings, provider, instructionSet: 'x64-avx2' });
  };
  const names = async (gate?: CommercialUseGate) =>
    (await look(gate)).selectable.map(({ kind, name }) => `${kind} ${name}`);
  const writePlans = (plans: object) =>
    writeFile(path.join(addedModelsDir, 'plans.json'), JSON.stringify(plans));
  return { folders, look, names, writePlans };
}

const GRAPH = { file: 'tiny.onnx', precision: 'fp32', inputName: 'input', outputName: 'output' };
const entry = (model: string, role = 'subject') => ({ model, inputSize: 32, role });

test('an added model may be asked for while its manifest and its weights are there', async t => {
  const { folders, look, names } = await open(t);
  t.deepEqual(await look(), { selectable: [], problems: [] });
  await addTinyModel(folders, 'mine');
  t.deepEqual(await names(), ['model mine']);
  const [mine] = (await look()).selectable;
  t.like(mine, { goodFor: 'tests', models: [{ role: 'subject', model: { provider: 'cpu' } }] });
  const weights = path.join(folders.modelDir, 'mine/1.0.0/weights/tiny.onnx');
  await writeFile(weights, 'half');
  t.deepEqual(await names(), []);
  await addTinyModel(folders, 'mine');
  await rm(path.join(folders.addedModelsDir, 'mine'), { recursive: true });
  t.deepEqual(await names(), []);
});

test('plans of an operator come before models, under names that no shipped plan has', async t => {
  const { folders, names, look, writePlans } = await open(t);
  await addTinyModel(folders, 'mine');
  await addTinyModel(folders, 'pair');
  await addTinyModel(folders, 'best');
  const graph = { ...GRAPH, inputWidth: 64, inputHeight: 32, dynamic: false };
  await addTinyModel(folders, 'oblong', { graph });
  const goodFor = 'two at once';
  await writePlans({
    pair: { goodFor, models: [entry('mine'), entry('best', 'opinion')] },
    wide: { goodFor, models: [{ model: 'oblong', role: 'subject' }] },
    lost: { goodFor, models: [entry('mine'), entry('elsewhere', 'opinion')] },
  });
  t.deepEqual(await names(), ['plan pair', 'plan wide', 'model mine', 'model oblong']);
  const { selectable, problems } = await look();
  t.is(selectable[0]?.goodFor, goodFor);
  t.deepEqual(
    selectable[0]?.models.map(({ role }) => role),
    ['subject', 'opinion'],
  );
  t.is(problems.length, 1);
  t.regex(problems[0] ?? '', /there is no model "elsewhere"/);
});

test('a model with a trimap refines in plans alone, and a model without one never refines', async t => {
  const { folders, look, names, writePlans } = await open(t);
  await addTinyModel(folders, 'mine');
  const graph = { ...GRAPH, inputWidth: 32, inputHeight: 32, dynamic: false, trimap: true };
  await addTinyModel(folders, 'edges', { graph });
  const goodFor = 'hair';
  await writePlans({
    good: { goodFor, models: [entry('mine'), entry('edges', 'refine')] },
    three: { goodFor, models: [entry('mine'), entry('mine', 'refine')] },
    four: { goodFor, models: [entry('edges')] },
    second: { goodFor, models: [entry('mine'), entry('edges', 'secondLook')] },
  });
  t.deepEqual(await names(), ['plan good', 'model mine']);
  const { selectable, problems } = await look();
  t.like(selectable[0]?.models[1], { role: 'refine', model: { form: { trimap: true } } });
  t.deepEqual(problems, [
    'the plan three cannot run: mine takes a picture without a trimap, and refines no matte; ' +
      'give it another role in plans.json, or name a model of four channels',
    "the plan four cannot run: edges refines another model's matte, and makes none as subject; " +
      'name it behind a subject, with the role refine, in a plan of plans.json',
    "the plan second cannot run: edges refines another model's matte, and makes none as second " +
      'look; name it behind a subject, with the role refine, in a plan of plans.json',
  ]);
  const env = { MATTING_MODEL: 'edges', MATTING_ADDED_MODELS_DIR: folders.addedModelsDir };
  const start = admittedOutlineOf(parseModelSettings(env, '/'));
  await rejectsWith(
    t,
    start,
    isModelError('settings', /^the plan edges cannot run: edges refines/),
  );
});

test('an unreadable model is reported, and the others stay selectable', async t => {
  const { folders, look, writePlans } = await open(t);
  await addTinyModel(folders, 'mine');
  await addTinyModel(folders, 'odd', { colourOrder: 'grey' });
  await writePlans([]);
  const { selectable, problems } = await look();
  t.deepEqual(
    selectable.map(({ name }) => name),
    ['mine'],
  );
  t.is(problems.length, 2);
  t.regex(problems.join(), /plans\.json: .*must be an object.*odd\/manifest\.json: colourOrder/s);
});

test('a look reads a model once, however many plans name it', async t => {
  const { folders, names, writePlans } = await open(t);
  await addTinyModel(folders, 'mine');
  const models = [entry('mine')];
  const plans = Array.from({ length: 64 }, (_, at) => [`plan-${at}`, { goodFor: 'a', models }]);
  await writePlans(Object.fromEntries(plans));
  const read: string[] = [];
  const spied = sinon.spy(fsPromises, 'readFile');
  syncBuiltinESMExports();
  try {
    t.is((await names()).length, 65);
    for (const { args } of spied.getCalls()) read.push(String(args[0]));
  } finally {
    spied.restore();
    syncBuiltinESMExports();
  }
  const ofMine = read.filter(file => file.endsWith(path.join('mine', 'manifest.json')));
  t.is(ofMine.length, 1);
});

test('a model whose terms are refused is in no list, nor a plan with it', async t => {
  const { folders, names, writePlans } = await open(t);
  const unclear = { ...TINY_LICENCE.weights, commercialUse: 'unclear' };
  await addTinyModel(folders, 'mine');
  await addTinyModel(folders, 'bare', { licence: { ...TINY_LICENCE, trainingData: unclear } });
  await writePlans({ pair: { goodFor: 'a', models: [entry('mine'), entry('bare', 'opinion')] } });
  t.deepEqual(await names('weights'), ['plan pair', 'model bare', 'model mine']);
  t.deepEqual(await names('strict'), ['model mine']);
});

test('a graph that is rewritten has to be prepared on a CPU; for a GPU the first load does it', async t => {
  const { folders, look } = await open(t);
  const sizes = { default: 32, listed: [32], multipleOf: 32, min: 32, max: 64 };
  const exported = { ...GRAPH, inputWidth: 32, inputHeight: 32 };
  await addTinyModel(folders, 'mine', { graph: exported, inputSize: sizes });
  const named = async (provider: ExecutionProvider) =>
    (await look(undefined, provider)).selectable.map(({ name }) => name);
  t.deepEqual(await named('cpu'), []);
  t.deepEqual(await named('cuda'), ['mine']);
  const manifest = await loadManifest('mine', undefined, folders.addedModelsDir);
  const key = { inputWidth: 32, inputHeight: 32, precision: 'fp32', provider: 'cpu' } as const;
  const made = { ...key, instructionSet: 'x64-avx2' };
  const file = preparedPath(folders.modelDir, manifest, made);
  await mkdir(path.dirname(file), { recursive: true });
  await writeFile(file, 'made');
  await writeSidecar(folders.modelDir, manifest, made, 4, sha256('made').toString('hex'));
  t.deepEqual(await named('cpu'), ['mine']);
});

test('unreadable files are reported, and the other models stay', async t => {
  const { folders, look } = await open(t);
  await addTinyModel(folders, 'mine');
  const unreadable = path.join(folders.addedModelsDir, 'broken', 'manifest.json');
  await mkdir(unreadable, { recursive: true });
  await symlink('loop', path.join(folders.addedModelsDir, 'loop'));
  await writeFile(path.join(folders.addedModelsDir, 'notes'), 'no folder, and no model');
  await mkdir(path.join(folders.addedModelsDir, 'plans.json'));
  const { selectable, problems } = await look();
  t.deepEqual(
    selectable.map(({ name }) => name),
    ['mine'],
  );
  t.is(problems.length, 3);
  for (const what of ['plans.json: it is a directory', 'broken/manifest.json: it is', 'loop/']) {
    t.true(
      problems.some(line => line.includes(what)),
      problems.join('\n'),
    );
  }
});
